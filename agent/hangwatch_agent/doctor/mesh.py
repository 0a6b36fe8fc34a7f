"""Each pair of ranks over plain TCP, as gloo would connect them: whether, how soon, and what the peer's clock says."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from hangwatch.doctor import endpoint
from hangwatch.doctor.model import Link

CONNECT_S, PINGS = 3.0, 5
ALL_PAIRS = 16  # ranks; in larger jobs each rank measures some peers only
CLOCK = struct.Struct("!d")


class Mesh:
    """Listens on a free port. Peers that do not know `token` are not answered."""

    def __init__(self) -> None:
        self.token = b""
        self._listener = socket.create_server(("", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, name="hangwatch-mesh", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with suppress(OSError):
                peer, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            peer.settimeout(CONNECT_S)
            shown = _exactly(peer, 16)
            deadline = time.monotonic() + CONNECT_S
            while not self.token and time.monotonic() < deadline:
                time.sleep(0.01)  # the peer has read the roster before us
            while shown == self.token and _exactly(peer, 1):
                peer.sendall(CLOCK.pack(time.time()))

    def measure(self, rank: int, address: str, port: int) -> Link:
        """Connect to a peer and ask it for the time. Never raises."""
        place = f"{address}:{port}"
        try:
            with socket.create_connection((address, port), CONNECT_S) as peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.sendall(self.token)
                took, offset = min(self._ping(peer) for _ in range(PINGS))
                return Link(rank, "tcp", True, place, latency_s=took / 2, clock_offset_s=offset)
        except OSError as error:
            said = endpoint.reach(address, port, CONNECT_S) or error.strerror or str(error)
            return Link(rank, "tcp", False, place, said)

    @staticmethod
    def _ping(peer: socket.socket) -> tuple[float, float]:
        """Round-trip time, and the peer's clock less ours, as NTP reckons it."""
        began, sent = time.monotonic(), time.time()
        peer.sendall(b"?")
        (theirs,) = CLOCK.unpack(_exactly(peer, CLOCK.size))
        took = time.monotonic() - began
        return took, theirs - (sent + took / 2)


def partners(own: int, roster: Sequence[int], hosts: Mapping[int, str]) -> list[int]:
    """Whom a rank measures: all in a small job; else ring neighbours at distances 1, 2, 4, ... and one of each host."""
    others = [rank for rank in roster if rank != own]
    if len(roster) <= ALL_PAIRS:
        return others
    at = list(roster).index(own)
    ring = {roster[(at + (1 << power)) % len(roster)] for power in range(len(roster).bit_length() - 1)}
    firsts: dict[str, int] = {}
    for rank in roster:
        firsts.setdefault(hosts.get(rank, ""), rank)
    chosen = ring | (set(firsts.values()) if own in firsts.values() and len(firsts) <= 4 * ALL_PAIRS else set())
    return sorted(chosen - {own})


def _exactly(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = peer.recv(count - len(data))
        if not piece:
            raise ConnectionError("the peer closed the connection")
        data += piece
    return data
