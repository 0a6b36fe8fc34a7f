"""A stand-in for NCCL's RAS service: it speaks the protocol of NCCL's own client, or breaks it as a test wants."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

COUNTS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def rank(number: int, pid: int, launched: int = 100, host: str = "127.0.0.1", **status: Any) -> dict[str, Any]:
    """One rank of a communicator as the JSON of 2.28.9 and later has it."""
    counts = dict.fromkeys(COUNTS, 0) | {"AllReduce": launched}
    known = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    place = {"rank": number, "host": host, "pid": pid, "cuda_dev": number, "nvml_dev": number}
    return place | {"status": known | status, "collective_counts": counts}


def missing(number: int, pid: int, *, dead: bool = False, host: str = "127.0.0.1") -> dict[str, Any]:
    place = {"rank": number, "host": host, "pid": pid, "cuda_dev": number, "nvml_dev": number}
    return place | {"status": {"unresponsive": True, "considered_dead": dead}}


def communicator(
    *ranks: Mapping[str, Any], absent: tuple[Mapping[str, Any], ...] = (), size: int = 0
) -> dict[str, Any]:
    """A communicator of the ranks that answered and those that did not."""
    return {
        "hash": "0x5ab9f6d0c1", "secondary_hash": "0x1:0x2", "size": size or len(ranks) + len(absent),
        "ranks_count": len(ranks), "missing_ranks_count": len(absent), "ranks": list(ranks),
        "missing_ranks": list(absent),
    }  # fmt: skip


def document(*communicators: Mapping[str, Any], version: str = "2.28.9") -> bytes:
    """The answer to STATUS in JSON."""
    return json.dumps(
        {
            "nccl_version": version, "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
            "timestamp": "2026-11-22 08:00:00", "communicators_count": len(communicators),
            "communicators": list(communicators), "ras": {"collection_time_sec": 0.01, "timeouts_count": 0},
        }
    ).encode()  # fmt: skip


class Service:
    """Serves one answer on a port of its own. `behaviour` is "" for NCCL's, else how it fails."""

    def __init__(self, answer: bytes | Callable[[], bytes], *, speaks_json: bool = True, behaviour: str = "") -> None:
        self.answer, self.speaks_json, self.behaviour = answer, speaks_json, behaviour
        self.lines: list[str] = []
        self.over = threading.Event()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.settimeout(0.1)
        self.place = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        while not self.over.is_set():
            with contextlib.suppress(OSError):
                connection, _ = self.listening.accept()
                with connection:
                    self.serve(connection)

    def serve(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        if self.behaviour == "silent":
            self.over.wait(30)
            return
        if self.behaviour == "closes":
            return
        if self.behaviour == "garbage":
            connection.sendall(b"\x00\xff" * 5000)
            return
        with connection.makefile("rb") as lines:
            for line in lines:
                self.lines.append(line.decode().strip())
                if not self.reply(connection, self.lines[-1]):
                    return

    def reply(self, connection: socket.socket, line: str) -> bool:
        """Answer a line; False where the connection ends then."""
        if line.endswith("STATUS"):
            self.status(connection)
            return False
        known = line.startswith(("CLIENT", "TIMEOUT")) or self.speaks_json
        said = "SERVER PROTOCOL 2" if line.startswith("CLIENT") else "OK" if known else f"ERROR: Unknown command {line}"
        connection.sendall(f"{said}\n".encode())
        return True

    def status(self, connection: socket.socket) -> None:
        if self.behaviour == "endless":
            for _ in range(100):
                connection.sendall(b"x" * (1 << 20))
        elif self.behaviour == "trickles":
            while not self.over.wait(0.05):
                connection.sendall(b" ")
        elif self.behaviour == "stops":
            connection.sendall(self.whole()[:100])
            self.over.wait(30)
        else:
            connection.sendall(self.whole())

    def whole(self) -> bytes:
        return self.answer if isinstance(self.answer, bytes) else self.answer()


@contextlib.contextmanager
def serving(answer: bytes | Callable[[], bytes], **options: Any) -> Iterator[Service]:
    """A service while the block runs."""
    service = Service(answer, **options)
    service.thread.start()
    try:
        yield service
    finally:
        service.over.set()
        service.listening.close()
        service.thread.join(5)
