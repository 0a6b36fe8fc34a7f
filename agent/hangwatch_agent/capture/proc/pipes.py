"""The processes that hold the ends of a pipe: the reader that does not read, the orphan that keeps it open.

Source: /proc/PID/fd and the flags in /proc/PID/fdinfo. Every process that may be looked into is, for a reader is often
no part of the job; that is done only for pipes that a process is blocked on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from hangwatch.model import Pipe, ProcessFacts
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import PROC

_READS = ("read", "readv", "splice")
_WRITES = ("write", "writev", "splice")
_LOOKS = ("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait")


def awaited(processes: Iterable[ProcessFacts]) -> frozenset[str]:
    """The pipes that a process is blocked on, with or without a name; of those that are polled, the outputs."""
    known = tuple(processes)
    outputs = {pipe.path for facts in known for pipe in facts.standard_pipes}
    found = set()
    for facts in known:
        file, call = facts.blocked_on, facts.system_call
        if file is None or not (file.path.startswith("pipe:") or file.filesystem == "fifo" or file.path in outputs):
            continue
        if call in _READS or call in _WRITES or (call in _LOOKS and file.path in outputs):
            found.add(file.path)
    return frozenset(found)


def ends(paths: Iterable[str], proc: Path = PROC) -> tuple[Pipe, ...]:
    """The readers and writers of each of `paths`. Never raises; processes that may not be inspected are left out."""
    readers: dict[str, list[int]] = {path: [] for path in paths}
    writers: dict[str, list[int]] = {path: [] for path in readers}
    if readers:
        for pid in sorted(procfs.pids(proc)):
            for path, mode in dict.fromkeys(_held(pid, readers, proc)):
                if mode in (os.O_RDONLY, os.O_RDWR):
                    readers[path].append(pid)
                if mode in (os.O_WRONLY, os.O_RDWR):
                    writers[path].append(pid)
    return tuple(Pipe(path, tuple(readers[path]), tuple(writers[path])) for path in sorted(readers))


def _held(pid: int, paths: Iterable[str], proc: Path) -> Iterator[tuple[str, int]]:
    folder = proc / str(pid)
    try:
        names = os.listdir(folder / "fd")
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(folder / "fd" / name)
            if target in paths:
                yield target, _mode(folder / "fdinfo" / name)
        except (OSError, ValueError):
            continue


def _mode(path: Path) -> int:
    """O_RDONLY, O_WRONLY or O_RDWR. Raises OSError, or ValueError where the file says nothing of flags."""
    for line in procfs.read_text(path).splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE
    raise ValueError("no flags")
