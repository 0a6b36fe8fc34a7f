"""Lock files that a process waits for, which process holds them, and whether it still lives.

Kernel locks (flock, fcntl): the blocking call names the descriptor, /proc/locks the owner. Locks that are
polled (torch's file baton, the filelock package): the path stands in a local variable of torch's or filelock's own
frame, and the owner is the process that has the file open. Those two variables are all that is kept of what py-spy
gives (`stacks.KEPT_LOCALS`). Locks that anything else polls (a database): the process naps with a file open that
another one has locked for writing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

from hangwatch.model import LockFile, ProcessFacts, ThreadStack
from hangwatch_agent.capture.stacks.py_spy import Dump, bare_name
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import PROC

_LOCK_LINE = re.compile(
    r"\d+: \w+ +\w+ +(?P<access>\w+) +(?P<pid>-?\d+) (?P<device>[0-9a-f]+:[0-9a-f]+):(?P<inode>\d+) "
)
_INODE = re.compile(r"^ino:\s+(\d+)", re.MULTILINE)
_POLLERS = (("torch/utils/file_baton.py", "wait"), ("filelock/_api.py", "acquire"))
_KERNEL_CALLS = ("flock", "fcntl")
_NAP_S = 2.0  # a process that polls sleeps no longer between two tries: SQLite 0.1 s


def polls_a_lock(stacks: Sequence[ThreadStack]) -> bool:
    """Whether a thread polls a lock file, so that its path is worth a dump with local variables."""
    return any(_polls(frame.file, frame.function) for stack in stacks for frame in stack.frames)


def lock_files(
    facts: ProcessFacts,
    dump: Dump | None = None,
    *,
    run_dir: Path | None = None,
    own_pid: int | None = None,
    proc: Path = PROC,
    clock: Callable[[], float] = time.time,
) -> tuple[LockFile, ...]:
    """The lock files that a process waits for. Never raises.

    Args:
        facts: the process.
        dump: its stacks with local variables, for locks that are polled.
        run_dir: where a rank says itself which lock it polls (`hangwatch_agent.rank.polled_lock`).
        own_pid: the pid by which it calls itself, where that differs from the one here.
        proc: root of the proc file system.
        clock: seconds since 1970, for the age.
    """
    polls = dump is not None and polls_a_lock(dump.stacks)
    told = [_told(run_dir / f"lock-{own_pid or facts.pid}.txt")] if run_dir is not None and polls else []
    paths = [*_waited_in_kernel(facts), *(_polled(dump) if dump else ()), *(path for path in told if path)]
    named = [_lock_file(path, facts.pid, proc, clock) for path in dict.fromkeys(paths)]
    if not named and 0 < (facts.sleeps_s or 0.0) <= _NAP_S:
        return tuple(_locked_by_others(facts.pid, proc, clock))
    return tuple(named)


def _waited_in_kernel(facts: ProcessFacts) -> Iterator[str]:
    if facts.system_call in _KERNEL_CALLS and facts.blocked_on and facts.blocked_on.path.startswith("/"):
        yield facts.blocked_on.path


def _polled(dump: Dump) -> Iterator[str]:
    frames = [frame for thread in dump.raw for frame in thread["frames"]]
    if not any(_polls(frame["filename"], bare_name(frame["name"])) for frame in frames):
        return
    for frame in frames:
        texts = {variable["name"]: variable["repr"] or "" for variable in frame["locals"] or ()}
        if frame["filename"].endswith("filelock/_api.py") and (path := _path(texts.get("lock_filename", ""))):
            yield path
        if frame["filename"].endswith("torch/utils/cpp_extension.py") and (
            folder := _path(texts.get("build_directory", ""))
        ):
            yield f"{folder}/lock"


def _told(file: Path) -> str:
    try:
        return _path(procfs.read_text(file)[:4096])
    except OSError:
        return ""


def _polls(file: str, function: str) -> bool:
    return any(file.endswith(poller) and function == name for poller, name in _POLLERS)


def _path(text: str) -> str:
    """A path from the text of a variable; "" where py-spy has cut it, or where it is none."""
    path = text.strip("'\"")
    return path if path.startswith("/") and not path.endswith("...") else ""


def _locked_by_others(waiter: int, proc: Path, clock: Callable[[], float]) -> Iterator[LockFile]:
    """The files that a process has open while another one, and not it, has locked them for writing."""
    locks = [lock for lock in _kernel_locks(proc) if lock["access"] == "WRITE"]
    files = _open_files(waiter, {int(lock["inode"]) for lock in locks}, proc) if locks else {}
    for path, found in files.items():
        pids = _kernel_owners(found, locks)
        owner = next((pid for pid in pids if _lives(pid, proc)), None)
        if owner is not None and waiter not in pids:
            yield LockFile(path, owner, True, max(clock() - found.st_mtime, 0.0), inferred=True)


def _lock_file(path: str, waiter: int, proc: Path, clock: Callable[[], float]) -> LockFile:
    seen = proc / str(waiter) / "root" / path.lstrip("/")  # as the waiter sees it, in its own mount namespace
    try:
        found = seen.stat()
    except OSError:
        return LockFile(path, None, False, 0.0)
    owners = _kernel_owners(found, _kernel_locks(proc)) or _holders(found, waiter, proc)
    alive = next((pid for pid in owners if pid != waiter and _lives(pid, proc)), None)
    unknown = any(pid <= 0 for pid in owners)  # an open-file-description lock belongs to no process
    return LockFile(path, alive, alive is not None or unknown, max(clock() - found.st_mtime, 0.0))


def _kernel_owners(found: os.stat_result, locks: Sequence[re.Match[str]]) -> tuple[int, ...]:
    """The process that holds one of these kernel locks on a file."""
    entries = [lock for lock in locks if int(lock["inode"]) == found.st_ino]
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    same_device = [entry for entry in entries if entry["device"] == device]  # overlay file systems show another one
    return tuple(int(entry["pid"]) for entry in same_device or entries)


def _kernel_locks(proc: Path) -> list[re.Match[str]]:
    """The locks that are held; lines with "->" wait for one. Source: proc_locks(5)."""
    try:
        lines = procfs.read_text(proc / "locks").splitlines()
    except OSError:
        return []
    return [match for line in lines if (match := _LOCK_LINE.match(line))]


def _open_files(pid: int, inodes: Set[int], proc: Path) -> dict[str, os.stat_result]:
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


def _holders(found: os.stat_result, waiter: int, proc: Path) -> tuple[int, ...]:
    """The process that has a file open whose existence is the lock: its maker keeps it open until the release."""
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
