"""What the ranks of this machine have sent to other machines since the last look, by the kernel's counters."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from hangwatch.model import Link
from hangwatch_agent.capture.proc.sockets import network_namespace
from hangwatch_agent.capture.proc.tcp_counters import Counters, tcp_counters
from hangwatch_agent.shared.procfs import socket_inodes


class LinkLook:
    """Compares each connection's counters with those of the look before.

    Ranks in another network namespace than this process are left out: the kernel tells of its own only. So is what
    does not go by TCP (InfiniBand, RoCE). A kernel that tells nothing is asked once.

    Args:
        counters: all connections of this network namespace by inode. Raises OSError.
        owned: the inodes of the sockets of a process. Raises OSError.
    """

    def __init__(
        self,
        counters: Callable[[], Mapping[str, Counters]] = tcp_counters,
        owned: Callable[[int], Sequence[str]] = socket_inodes,
    ) -> None:
        self._counters, self._owned = counters, owned
        self._before: dict[str, Counters] = {}
        self._silent = False

    def __call__(self, pids: Sequence[int]) -> tuple[Link, ...]:
        """One link for each pair of addresses over which data went."""
        if self._silent:
            return ()
        try:
            known = self._counters()
        except OSError:
            self._silent = True
            return ()
        now = {inode: known[inode] for pid in pids for inode in self._inodes(pid) if inode in known}
        before, self._before = self._before, now
        grown = [_since(each, before[inode]) for inode, each in now.items() if inode in before]
        return tuple(_links(each for each in grown if each.local != each.remote and each.acknowledged > 0))

    def _inodes(self, pid: int) -> Sequence[str]:
        with contextlib.suppress(OSError):
            if network_namespace(pid) == network_namespace(os.getpid()):
                return self._owned(pid)
        return ()


def _since(now: Counters, before: Counters) -> Counters:
    return Counters(
        now.local,
        now.remote,
        now.acknowledged - before.acknowledged,
        now.busy_s - before.busy_s,
        now.no_room_s - before.no_room_s,
        now.segments - before.segments,
        now.sent_again - before.sent_again,
    )


def _links(connections: Iterator[Counters]) -> Iterator[Link]:
    ends: dict[tuple[str, str], list[Counters]] = {}
    for each in connections:
        ends.setdefault((each.local, each.remote), []).append(each)
    for (local, remote), group in sorted(ends.items()):
        yield Link(
            local,
            remote,
            len(group),
            sent=sum(each.acknowledged for each in group),
            busy_s=round(max(sum(each.busy_s - each.no_room_s for each in group), 0.0), 3),
            segments=sum(each.segments for each in group),
            sent_again=sum(each.sent_again for each in group),
        )
