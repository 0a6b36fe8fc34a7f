"""What a descriptor of another process is: a path and its file system, a pipe, a socket with its two ends.

Source: /proc/PID/fd, /proc/PID/mountinfo, /proc/PID/net.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from hangwatch.facts.processes.locks import SHARED
from hangwatch.model import OpenFile
from hangwatch_agent.capture.proc import sockets
from hangwatch_agent.shared.procfs import PROC, read_text


def open_file(pid: int, fd: int, proc: Path = PROC) -> OpenFile:
    """A descriptor in words. Raises OSError where it is not open or may not be read."""
    link = proc / str(pid) / "fd" / str(fd)
    target = str(link.readlink())
    if (inode := _inode(target)) is not None:
        return OpenFile(fd, sockets.describe(pid, inode, proc))
    if not target.startswith("/"):
        return OpenFile(fd, target)
    return OpenFile(fd, target, "fifo" if link.is_fifo() else filesystem_of(pid, target, proc))


def socket_inode(pid: int, fd: int, proc: Path = PROC) -> str | None:
    """The inode of the socket behind a descriptor; None for anything else. Raises OSError where it is not open."""
    return _inode(str((proc / str(pid) / "fd" / str(fd)).readlink()))


def _inode(target: str) -> str | None:
    return target[8:-1] if target.startswith("socket:[") else None


def named(pid: int, path: str, proc: Path = PROC) -> OpenFile:
    """What a process is about to open. A file system that may not answer is not asked what lies there."""
    full = _absolute(pid, path, proc)
    kind = filesystem_of(pid, full, proc)
    local = kind is not None and not kind.startswith(SHARED)
    return OpenFile(-1, full, "fifo" if local and _is_fifo(pid, path, proc) else kind)


def _absolute(pid: int, path: str, proc: Path) -> str:
    """`path` as seen from the working directory of that process; as it is where that cannot be read."""
    try:
        return str((proc / str(pid) / "cwd").readlink() / path)
    except OSError:
        return path


def _is_fifo(pid: int, path: str, proc: Path) -> bool:
    """In the name space of that process, from its working directory."""
    try:
        return (proc / str(pid) / ("root" if path.startswith("/") else "cwd") / path.lstrip("/")).is_fifo()
    except OSError:
        return False


def standard_pipes(pid: int, proc: Path = PROC) -> tuple[OpenFile, ...]:
    """Descriptors 1 and 2 where they are pipes, FIFOs with a name included. Raises OSError."""
    found = []
    for fd in (1, 2):
        try:
            link = proc / str(pid) / "fd" / str(fd)
            target = str(link.readlink())
        except FileNotFoundError:  # closed
            continue
        if target.startswith("pipe:") or (target.startswith("/") and link.is_fifo()):
            found.append(OpenFile(fd, target))
    return tuple(found)


def count(pid: int, proc: Path = PROC) -> int:
    """How many descriptors a process has open. Raises OSError."""
    return sum(1 for _ in (proc / str(pid) / "fd").iterdir())


def limit(pid: int, proc: Path = PROC) -> int | None:
    """The soft limit of open descriptors (RLIMIT_NOFILE); None for none. Raises OSError."""
    for line in read_text(proc / str(pid) / "limits").splitlines():
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else None
    return None


def filesystem_of(pid: int, path: str, proc: Path = PROC) -> str | None:
    """The type of the file system that a path of a process lies on, e.g. "ext4", "nfs4"."""
    best: tuple[int, str] | None = None
    try:
        lines = read_text(proc / str(pid) / "mountinfo").splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        point, kind = _unescaped(before.split()[4]), after.split()[0]
        if PurePosixPath(path).is_relative_to(point) and (best is None or len(point) >= best[0]):
            best = (len(point), kind)  # of equal points the later mount covers the earlier one
    return best[1] if best else None


def _unescaped(text: str) -> str:
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, character)
    return text
