"""The plumbing of /proc: text that may vanish, the fields of `stat`, a table of all processes at one moment.

Source: proc(5). Every reader takes the root of the file system, so that tests can show it a made-up one.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hangwatch_agent.shared import steady_clock

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SAME_START_S = 2.0  # btime is whole seconds, and the kernel rounds it anew when the clock is set


@dataclass(frozen=True)
class Stat:
    """One line of /proc/PID/stat. `ticks` is its start in clock ticks since boot.

    `exit_code` is a zombie's, negative for a signal; None for the living and where the kernel will not tell.
    """

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    cpu_s: float
    threads: int
    ticks: int
    resident_bytes: int
    exit_code: int | None = None


def read_text(path: Path) -> str:
    """The text of a file of /proc. Raises OSError; undecodable bytes become replacement characters."""
    return path.read_bytes().decode("utf-8", "replace")


def reason(error: OSError) -> str:
    """Why a file could not be read, in a few words."""
    return {1: "not permitted", 2: "not there", 3: "process is gone", 13: "permission denied"}.get(
        error.errno or 0, error.strerror or str(error)
    )


def stat_of(pid: int, proc: Path = PROC) -> Stat | None:
    """The `stat` of a process; None if it is gone or its line makes no sense.

    With /proc/PID/task as `proc` it is that of a thread.
    """
    try:
        return parse_stat(read_text(proc / str(pid) / "stat"))
    except (OSError, ValueError, IndexError):
        return None


def io_bytes(pid: int, proc: Path = PROC) -> tuple[int, int]:
    """Bytes read by system calls since its start, and bytes written. Raises OSError or ValueError."""
    lines = dict(line.split(": ") for line in read_text(proc / str(pid) / "io").splitlines())
    return int(lines["rchar"]), int(lines["wchar"])


def socket_inodes(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The inodes of all sockets among a process's descriptors. Raises OSError."""
    folder = proc / str(pid) / "fd"
    found = []
    for fd in folder.iterdir():
        try:
            target = str(fd.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            found.append(target[8:-1])
    return tuple(found)


def ancestors_of(pid: int, proc: Path = PROC) -> tuple[int, ...]:
    """Parent, grandparent and so on, nearest first, without pid 1 and 0."""
    found: list[int] = []
    stat = stat_of(pid, proc)
    while stat and stat.parent > 1 and stat.parent not in found:
        found.append(stat.parent)
        stat = stat_of(stat.parent, proc)
    return tuple(found)


def has_ended(pid: int, proc: Path = PROC) -> bool:
    """Whether a process is gone or a zombie."""
    stat = stat_of(pid, proc)
    return stat is None or stat.state in "XZ"


def parse_stat(text: str) -> Stat:
    """The fields of a `stat` line. Raises ValueError or IndexError."""
    head, _, tail = text.rpartition(")")  # the name may hold blanks and parentheses itself
    pid, _, name = head.partition(" (")
    values = tail.split()
    return Stat(
        pid=int(pid),
        name=name,
        state=values[0],
        parent=int(values[1]),
        group=int(values[2]),
        session=int(values[3]),
        cpu_s=(int(values[11]) + int(values[12])) / TICKS_PER_S,
        threads=int(values[17]),
        ticks=int(values[19]),
        resident_bytes=int(values[21]) * PAGE_BYTES,
        exit_code=_exit_code(values),
    )


def _exit_code(values: list[str]) -> int | None:
    if values[0] not in "ZX" or len(values) < 50:
        return None
    return exit_code_of(int(values[49]))


def handles(number: int, pid: int, proc: Path = PROC) -> bool:
    """Whether a process has a handler of its own for that signal. Raises OSError and ValueError."""
    for line in read_text(proc / str(pid) / "status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    raise ValueError("no SigCgt")


def exit_code_of(status: int) -> int:
    """The exit code of a wait status, negative for a signal."""
    return os.waitstatus_to_exitcode(status)


def process_state(pid: int, start_ticks: int) -> str:
    """The state letter of a process, or "X" where it is gone or its pid has been given to another one.

    `start_ticks` is the process's start in clock ticks since boot (0: not known). Ticks and not times of day are
    compared: a clock that is set anew must not make living ranks look dead.
    """
    try:
        stat = parse_stat(read_text(PROC / str(pid) / "stat"))
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    except (OSError, ValueError, IndexError):
        return "?"
    return "X" if start_ticks and stat.ticks != start_ticks else stat.state


@functools.lru_cache(maxsize=8)
def boot_time(proc: Path = PROC) -> float:
    """When the machine started, in seconds since 1970 by the steady clock; 0.0 where a made-up /proc does not say."""
    if proc == PROC:
        return steady_clock.boot_time()
    try:
        lines = read_text(proc / "stat").splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("btime ")))
    except (OSError, ValueError, IndexError, StopIteration):
        return 0.0


def started_at(stat: Stat, proc: Path = PROC) -> float:
    """When a process started, in seconds since 1970 (within about a second)."""
    return boot_time(proc) + stat.ticks / TICKS_PER_S


def is_same(pid: int, started: float, proc: Path = PROC, *, mapped: Path | None = None) -> bool:
    """Whether `pid` is still the process that started at `started`, and not another one that got its number.

    A clock that was set moves all start times: one that maps its own board (`mapped`) is the same.
    """
    stat = stat_of(pid, proc)
    if stat is None:
        return False
    if abs(started_at(stat, proc) - started) <= SAME_START_S:
        return True
    return mapped is not None and _maps(pid, mapped, proc)


def _maps(pid: int, path: Path, proc: Path) -> bool:
    if sleeps_uninterruptibly(pid, proc):
        return True  # in doubt it is the rank: one that hangs is not to be taken for one that is gone
    try:
        return any(line.endswith(f" {path}") for line in read_text(proc / str(pid) / "maps").splitlines())
    except OSError:
        return False


def sleeps_uninterruptibly(pid: int, proc: Path = PROC) -> bool:
    """Whether a process may hold its memory map locked (state D): reading about its memory could block too."""
    stat = stat_of(pid, proc)
    return stat is not None and stat.state == "D"


def pid_namespace(process: str = "self") -> int:
    """The inode of a process's pid namespace, which names it on this host; 0 where it cannot be read."""
    try:
        return os.stat(f"{PROC}/{process}/ns/pid").st_ino  # noqa: PTH116 - pathlib costs a rank more
    except OSError:
        return 0


def command_line(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The arguments of a process, not redacted; () for the dead, zombies, kernel threads and those in state D."""
    if sleeps_uninterruptibly(pid, proc):
        return ()
    try:
        return tuple(read_text(proc / str(pid) / "cmdline").rstrip("\0").split("\0"))
    except OSError:
        return ()


def environment(pid: int, proc: Path = PROC) -> dict[str, str]:
    """The environment that a process was started with, not redacted. Raises OSError, also for those in state D.

    What it has put into os.environ since (as ranks of mp.spawn do) does not stand there.
    """
    if sleeps_uninterruptibly(pid, proc):
        raise BlockingIOError(errno.EAGAIN, "not read in state D")
    entries = read_text(proc / str(pid) / "environ").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


@dataclass(frozen=True)
class Table:
    """All processes at about one moment: processes come and go while it is read."""

    stats: Mapping[int, Stat]
    proc: Path = PROC
    _children: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, proc: Path = PROC) -> Table:
        """Reads `stat` of every process (about 30 us each)."""
        stats = {stat.pid: stat for pid in pids(proc) if (stat := stat_of(pid, proc))}
        children: dict[int, tuple[int, ...]] = {}
        for stat in stats.values():
            children[stat.parent] = (*children.get(stat.parent, ()), stat.pid)
        return cls(stats, proc, children)

    def children(self, pid: int) -> tuple[int, ...]:
        """The direct children, by pid."""
        return tuple(sorted(self._children.get(pid, ())))

    def descendants(self, pid: int) -> tuple[int, ...]:
        """Children, their children and so on, parents before children; without `pid` itself."""
        found: dict[int, None] = {}
        queue = list(self.children(pid))
        while queue:
            if (child := queue.pop(0)) not in found and child != pid:
                found[child] = None
                queue.extend(self.children(child))
        return tuple(found)

    def ancestors(self, pid: int) -> tuple[int, ...]:
        """Parent, grandparent and so on, nearest first, without pid 1 and 0."""
        found: list[int] = []
        stat = self.stats.get(pid)
        while stat and stat.parent > 1 and stat.parent not in found:
            found.append(stat.parent)
            stat = self.stats.get(stat.parent)
        return tuple(found)


def pids(proc: Path) -> Iterator[int]:
    """The processes that are there, in no order; none if the folder cannot be read."""
    try:
        names = [path.name for path in proc.iterdir()]
    except OSError:
        return iter(())
    return (int(name) for name in names if name.isdigit())
