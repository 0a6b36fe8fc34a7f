"""When a rank that stands still last wrote something, itself or by a process of its own, or went on to its next one.

A rank that prints a line now and then is at work, if slowly: an evaluation on one rank, a child that converts data. So
is one that waits for another child, or on another connection, than it did before: it makes one request after the other.
Source: the counter `wchar` of /proc/PID/io, see proc(5), which counts what goes to files, pipes and terminals; its
children, and the sockets among its open files.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from hangwatch_agent.board.file_name import own_pid
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.own_stacks import stacks_file

LOOK_S = 5.0  # between two looks at the counters of a rank, and how long it stands still before the first
MOST_PROCESSES = 64  # of a rank that are looked at


@dataclass(frozen=True)
class _Look:
    moved_at: float
    at: float
    counters: dict[int, int]  # bytes written, by pid
    sockets: frozenset[str]
    for_us: tuple[int, ...]  # when it last wrote what we asked for, by file
    wrote_at: float | None


class Written:
    """Remembers how much the ranks have written while they stand still. `folder` is that of their boards."""

    def __init__(self, folder: Path, proc: Path = procfs.PROC) -> None:
        self._folder = folder
        self._proc = proc
        self._known: dict[Path, _Look] = {}

    def last(self, board: Path, pid: int, moved_at: float, now: float) -> float | None:
        """When it was last seen to have written since `moved_at`, when its counters moved; None where it was not."""
        if now - moved_at < LOOK_S:
            self._known.pop(board, None)
            return None
        known = self._known.get(board)
        if known is None or known.moved_at != moved_at:
            # Since when nothing is known to have been written.
            known = _Look(moved_at, moved_at, {}, frozenset(), (), None)
        if now - known.at >= LOOK_S:
            known = self._known[board] = self._looked(known, board, pid, now)
        return known.wrote_at

    def _looked(self, known: _Look, board: Path, pid: int, now: float) -> _Look:
        counters, for_us = dict(self._counters(pid)), self._for_us(own_pid(board) or pid)
        sockets = self._sockets(pid)
        wrote = known.for_us == for_us and _grew(known.counters, counters)
        works = wrote or _follow(known.counters.keys(), counters.keys()) or _follow(known.sockets, sockets)
        return _Look(known.moved_at, now, counters, sockets, for_us, now if works else known.wrote_at)

    def _counters(self, pid: int) -> Iterator[tuple[int, int]]:
        queue = [pid]
        for place in range(MOST_PROCESSES):
            if place >= len(queue):
                return
            try:
                yield queue[place], procfs.io_bytes(queue[place], self._proc)[1]
                queue += _children(self._proc / str(queue[place]))
            except (OSError, ValueError):
                continue  # it has ended, or is not ours to look at

    def _sockets(self, pid: int) -> frozenset[str]:
        try:
            return frozenset(procfs.socket_inodes(pid, self._proc))
        except OSError:
            return frozenset()  # it has ended, or is not ours to look at

    def _for_us(self, pid: int) -> tuple[int, ...]:
        """An answer to a question of ours, stacks and the lock that it waits for are no work of its own."""
        names = (f"collectives-{pid}.json", stacks_file(self._folder, pid).name, f"lock-{pid}.txt", f"polled-{pid}.txt")
        return tuple(map(_modified, (self._folder / name for name in names)))


def _grew(before: dict[int, int], now: dict[int, int]) -> bool:
    return any(count > before.get(pid, count) for pid, count in now.items())


def _follow(before: AbstractSet[Hashable], now: AbstractSet[Hashable]) -> bool:
    """Something is there that was not, and something is gone: one that came alone may be what it waits for since."""
    return bool(now - before and before - now)


def _children(folder: Path) -> list[int]:
    """Those that any of its threads has started."""
    lists = (procfs.read_text(task / "children") for task in (folder / "task").iterdir())
    return [int(pid) for each in lists for pid in each.split()]


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
