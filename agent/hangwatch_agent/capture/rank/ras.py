"""Asks NCCL's RAS service, which threads of NCCL itself answer: without Python, torch or the interpreter lock.

The protocol is lines of text over TCP (NCCL's src/ras/client.cc): the client names its protocol, sets a timeout and a
format, and asks for the status once; the server answers and closes the connection. Each machine's first process listens
on localhost:28028, or where NCCL_RAS_ADDR says. What listens there may be another job's, or no NCCL at all.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hangwatch import ras
from hangwatch.model import CaptureNote, NcclView, RankEvidence
from hangwatch_agent.capture.options import CaptureResult
from hangwatch_agent.capture.proc import sockets

DEADLINE_S = 5.0  # for the whole conversation
CONNECT_S = 1.0
COLLECT_S = 2  # for which the RAS threads wait for each other
LARGEST = 32 << 20  # bytes of an answer: 50,000 ranks in a communicator
LONGEST_LINE = 4096
MOST_PLACES = 8
AGAIN_S = 60.0  # before a service that did not answer in time is asked once more
PLACE = "localhost:28028"
LOOPBACK = ("127.0.0.1", "::1")
SOURCE = "NCCL's RAS service"
SILENT = "no process answers at {}: NCCL is older than 2.24, or its RAS service is turned off"


class NoAnswerError(Exception):
    """Why there is no answer, in a sentence. `slow` where waiting for it took its time."""

    def __init__(self, why: str, slow: bool = False) -> None:
        super().__init__(why)
        self.slow = slow


@dataclass
class Ras:
    """The RAS services of one job on this machine."""

    clock: Callable[[], float] = time.monotonic
    proc: Path = Path("/proc")
    deadline_s: float = DEADLINE_S
    _refused_at: dict[str, tuple[float, str]] = field(default_factory=dict)

    def completed(self, taken: CaptureResult) -> CaptureResult:
        """The evidence with what NCCL says, where the job uses it. Never raises."""
        ranks = [rank for rank in taken.ranks if _uses_nccl(rank)]
        if not ranks:
            return taken
        began = self.clock()
        view, why = self._view(ranks, taken)
        note = CaptureNote(SOURCE, view is not None, why, self.clock() - began)
        return replace(taken, node=replace(taken.node, nccl=view), notes=(*taken.notes, note))

    def _view(self, ranks: Sequence[RankEvidence], taken: CaptureResult) -> tuple[NcclView | None, str]:
        if all(rank.board_settings.get("NCCL_RAS_ENABLE") == "0" for rank in ranks):
            return None, "it is turned off (NCCL_RAS_ENABLE=0)"
        own = self._processes(ranks, (*taken.node.addresses, "127.0.0.1", "::1", "unknown"))
        groups = [head.members for rank in taken.ranks for head in rank.collectives.heads if head.members]
        size = max((each.reading.identity.world_size or 0 for each in ranks if each.reading), default=0)
        why = ""
        for place in places(rank.board_settings for rank in ranks):
            try:
                return ras.parsed(self._asked(place), own, dict.fromkeys(groups), size or None), ""
            except (NoAnswerError, ras.RasError) as error:
                why = str(error)
        return None, why

    def _asked(self, place: str) -> bytes:
        at, why = self._refused_at.get(place, (-AGAIN_S, ""))
        if self.clock() - at < AGAIN_S:
            raise NoAnswerError(why)
        try:
            return ask(place, self.deadline_s, self.clock)
        except NoAnswerError as error:
            if error.slow:
                self._refused_at[place] = (self.clock(), str(error))
            raise

    def _processes(self, ranks: Iterable[RankEvidence], addresses: Iterable[str]) -> dict[tuple[int, str], int]:
        """Our ranks by pid and address; in a container NCCL knows the pid that the process has there."""
        places = list(addresses)
        return {
            (pid, address): rank.rank
            for rank in ranks
            if rank.pid is not None
            for pid in {rank.pid, *self._inner_pids(rank.pid)}
            for address in places
        }

    def _inner_pids(self, pid: int) -> list[int]:
        try:
            status = (self.proc / str(pid) / "status").read_text()
        except (OSError, ValueError):
            return []
        return [int(word) for line in status.splitlines() if line.startswith("NSpid:") for word in line.split()[1:]]


def places(settings: Iterable[Mapping[str, str]]) -> list[str]:
    """Where to ask: the addresses that the ranks were given, else the common one."""
    return list(dict.fromkeys(each.get("NCCL_RAS_ADDR") or PLACE for each in settings))[:MOST_PLACES]


def ask(place: str, deadline_s: float = DEADLINE_S, clock: Callable[[], float] = time.monotonic) -> bytes:
    """The answer to a status command at "host:port". Raises NoAnswerError."""
    until = clock() + deadline_s
    host, _, port = place.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise NoAnswerError(f"NCCL_RAS_ADDR={place} names no port")
    try:
        with _connected(host.strip("[]"), int(port)) as connection:
            return _Conversation(connection, until, clock).status()
    except TimeoutError as error:
        raise NoAnswerError(f"{place} gave no whole answer within {deadline_s:g} s", slow=True) from error
    except ConnectionRefusedError as error:
        raise NoAnswerError(SILENT.format(place)) from error
    except OSError as error:
        raise NoAnswerError(f"{place} cannot be asked: {error.strerror or error}") from error


def _connected(host: str, port: int) -> socket.socket:
    """A connection to the first address that takes one. Raises OSError: TimeoutError where none takes it in time."""
    addresses = LOOPBACK if host in ("", "localhost") else sockets.resolve(host, CONNECT_S)
    if addresses is None:
        raise TimeoutError
    refusal: OSError = OSError(0, "its name is not known")
    for address in addresses[:MOST_PLACES]:
        try:
            return socket.create_connection((address, port), timeout=CONNECT_S)
        except OSError as error:
            # That another address is refused, or not to be had, says less than that one is.
            refusal = refusal if isinstance(refusal, ConnectionRefusedError) else error
    raise refusal


class _Conversation:
    """One connection. Each read ends at the deadline, whatever trickles in."""

    def __init__(self, connection: socket.socket, until: float, clock: Callable[[], float]) -> None:
        self._connection, self._until, self._clock = connection, until, clock
        self._pending = b""

    def status(self) -> bytes:
        if not self._said("CLIENT PROTOCOL 2").upper().startswith("SERVER PROTOCOL "):
            raise NoAnswerError("what listens there is not NCCL's RAS service")
        self._said(f"TIMEOUT {COLLECT_S}")
        in_json = self._said("SET FORMAT json").upper() == "OK"  # text before 2.28.9, which calls this an error
        self._send("STATUS" if in_json else "VERBOSE STATUS")
        return self._rest()

    def _said(self, line: str) -> str:
        """What is answered to a line."""
        self._send(line)
        while b"\n" not in self._pending:
            if len(self._pending) > LONGEST_LINE:
                raise NoAnswerError("what listens there is not NCCL's RAS service")
            more = self._received()
            if not more:
                raise NoAnswerError("the connection was closed before an answer came")
            self._pending += more
        answer, _, self._pending = self._pending.partition(b"\n")
        return answer.decode("utf-8", "replace").strip()

    def _send(self, line: str) -> None:
        self._wait_until_the_deadline()
        self._connection.sendall(f"{line}\n".encode())

    def _rest(self) -> bytes:
        parts, size = [self._pending], len(self._pending)
        while more := self._received():
            parts.append(more)
            size += len(more)
            if size > LARGEST:
                raise NoAnswerError(f"the answer is larger than {LARGEST >> 20} MiB", slow=True)
        return b"".join(parts)

    def _received(self) -> bytes:
        self._wait_until_the_deadline()
        return self._connection.recv(1 << 16)

    def _wait_until_the_deadline(self) -> None:
        left = self._until - self._clock()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)


def _uses_nccl(rank: RankEvidence) -> bool:
    return any(head.uses_nccl for head in rank.collectives.heads)
