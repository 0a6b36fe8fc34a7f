"""Memory of the job's cgroup (version 2 or 1) and of /dev/shm: limits, use, and kills for want of memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hangwatch_agent.shared.procfs import PROC, read_text

CGROUPS = Path("/sys/fs/cgroup")
SHM = Path("/dev/shm")
_NO_LIMIT = 1 << 60  # version 1 says "no limit" as a very large number


@dataclass(frozen=True)
class Memory:
    """Bytes; None for no limit or not known. `oom_kills` counts since the cgroup was made."""

    limit: int | None = None
    used: int | None = None
    oom_kills: int | None = None


def memory_of(pid: int, proc: Path = PROC, cgroups: Path = CGROUPS) -> Memory:
    """The tightest memory limit above a process, its group's use and OOM kills. Raises OSError if it has none."""
    version_2, version_1 = _paths(pid, proc)
    if version_1 is not None:
        root = cgroups / "memory" if (cgroups / "memory").is_dir() else cgroups
        return _read(root, version_1, "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control")
    if version_2 is not None:
        root = cgroups / "unified" if (cgroups / "unified").is_dir() else cgroups
        return _read(root, version_2, "memory.max", "memory.current", "memory.events")
    raise FileNotFoundError(2, "the process is in no memory cgroup")


def shm(path: Path = SHM) -> tuple[int, int]:
    """Total and free bytes of /dev/shm. Raises OSError."""
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _paths(pid: int, proc: Path) -> tuple[str | None, str | None]:
    """The process's cgroup in the hierarchies of version 2 and of version 1's memory controller."""
    version_2 = version_1 = None
    for line in read_text(proc / str(pid) / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            version_2 = path
        elif "memory" in controllers.split(","):
            version_1 = path
    return version_2, version_1


def _read(root: Path, path: str, limit: str, used: str, events: str) -> Memory:
    """A limit holds for all groups below it, so the smallest on the way up counts."""
    own = root / path.lstrip("/")
    if not own.is_dir():
        own = root
    limits = [
        (value, folder)
        for folder in (own, *own.parents)
        if folder.is_relative_to(root) and (value := _number(folder / limit)) is not None and value < _NO_LIMIT
    ]
    tightest, folder = min(limits, key=lambda found: found[0], default=(None, own))
    return Memory(tightest, _number(folder / used), _oom_kills(own / events))


def _number(path: Path) -> int | None:
    try:
        text = read_text(path).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" is no limit


def _oom_kills(path: Path) -> int | None:
    try:
        pairs = dict(line.split() for line in read_text(path).splitlines())
        return int(pairs["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None
