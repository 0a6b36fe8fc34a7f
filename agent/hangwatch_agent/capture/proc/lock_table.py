"""Which processes hold a lock on a file, by the kernel's own tables, and which have the file open.

Source: /proc/locks, proc_locks(5); /proc/PID/fd and fdinfo, proc(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from hangwatch_agent.shared import procfs

_LOCK_LINE = re.compile(
    r"\d+: \w+ +\w+ +(?P<access>\w+) +(?P<pid>-?\d+) (?P<device>[0-9a-f]+:[0-9a-f]+):(?P<inode>\d+) "
)
_INODE = re.compile(r"^ino:\s+(\d+)", re.MULTILINE)


def holder(taken: Sequence[int], found: os.stat_result, waiter: int, proc: Path) -> int | None:
    """The living process that holds a kernel lock which `taken` took; None where none is seen.

    A flock belongs to the open file and not to the process that took it: one that has closed its descriptor holds
    nothing, though /proc/locks goes on naming it while a child of it has the file open. Where fdinfo shows the lock on
    no process (those of other users cannot be read), the process that took it counts.
    """
    own = [pid for pid in taken if pid != waiter and holds(pid, found, proc)]
    return next(iter(own), None) or next(inheritors(found, waiter, proc), None) or living(taken, waiter, proc)


def living(pids: Sequence[int], waiter: int, proc: Path) -> int | None:
    """The first of `pids` that lives and is not the one that waits."""
    return next((pid for pid in pids if pid != waiter and _lives(pid, proc)), None)


def inheritors(found: os.stat_result, waiter: int, proc: Path) -> Iterator[int]:
    """Processes that hold a lock which another one took: they have a descriptor of the same open file."""
    for pid in procfs.pids(proc):
        if pid != waiter and holds(pid, found, proc):
            yield pid


def holds(pid: int, found: os.stat_result, proc: Path, *, for_writing: bool = False) -> bool:
    """Whether one of its open files has a lock on this one, whichever process took it. Source: fdinfo, proc(5).

    With `for_writing` a lock that others may have beside it, as all users of a database do, does not count.
    """
    folder = proc / str(pid) / "fdinfo"
    for name in _names(folder):
        try:
            lines = procfs.read_text(folder / name).splitlines()
        except OSError:
            continue
        entries = (match for line in lines if (match := _LOCK_LINE.match(line.partition("lock:")[2].strip())))
        mine = (entry for entry in entries if entry["access"] == "WRITE" or not for_writing)
        if any(int(entry["inode"]) == found.st_ino for entry in mine):
            return True
    return False


def owners_of(found: os.stat_result, locks: Sequence[re.Match[str]]) -> tuple[int, ...]:
    """Who holds one of these kernel locks on a file."""
    entries = [lock for lock in locks if int(lock["inode"]) == found.st_ino]
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    same_device = [entry for entry in entries if entry["device"] == device]  # overlay file systems show another one
    return tuple(int(entry["pid"]) for entry in same_device or entries)


def held_locks(proc: Path) -> list[re.Match[str]]:
    """The locks that are held; lines with "->" wait for one. Source: proc_locks(5)."""
    try:
        lines = procfs.read_text(proc / "locks").splitlines()
    except OSError:
        return []
    return [match for line in lines if (match := _LOCK_LINE.match(line))]


def open_files(pid: int, inodes: Set[int], proc: Path) -> dict[str, os.stat_result]:
    """The files of these inodes that a process has open, by the path under which it opened them.

    No other file is touched: its server may be dead, and a process that asks for it would wait. Source: fdinfo,
    proc(5), which has the inode since Linux 5.14.
    """
    found = {}
    for name in _names(proc / str(pid) / "fd"):
        try:
            told = _INODE.search(procfs.read_text(proc / str(pid) / "fdinfo" / name))
            if told and int(told[1]) in inodes:
                link = proc / str(pid) / "fd" / name
                found[os.readlink(link)] = link.stat()
        except OSError:
            continue
    return found


def holders(found: os.stat_result, waiter: int, proc: Path) -> tuple[int, ...]:
    """Processes that have a file open whose existence is the lock: its maker keeps it open until the release."""
    others = (pid for pid in procfs.pids(proc) if pid != waiter)
    return tuple(pid for pid in others if _has_open(proc / str(pid) / "fd", found))


def _has_open(folder: Path, found: os.stat_result) -> bool:
    for name in _names(folder):
        try:
            if os.path.samestat((folder / name).stat(), found):
                return True
        except OSError:
            continue
    return False


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _lives(pid: int, proc: Path) -> bool:
    found = procfs.stat_of(pid, proc) if pid > 0 else None
    return found is not None and found.state not in "ZX"
