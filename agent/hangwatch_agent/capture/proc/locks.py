"""Lock files that a process waits for, which process holds them, and whether it still lives.

Kernel locks (flock, fcntl): the blocking call names the descriptor, /proc/locks the process that took the lock. A
child inherits a flock with its descriptors, and holds it after its parent has closed them or has ended: fdinfo shows
that. Locks that are polled (torch's file baton, the filelock package): the path stands in a local variable of torch's
or filelock's own frame, and the owner is the process that has the file open. Those two variables are all that is kept
of what py-spy gives (`stacks.KEPT_LOCALS`). Locks that anything else polls (a database): the process naps with a file
open that another one has locked for writing; or with FileExistsError as its last error (a lock file of the program's
own), where the text of that file is the pid of the process that made it. One that lives may have let go of it in
another way, and its pid may be that of a later process: only a dead one is told.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from hangwatch.model import ExceptionFacts, LockFile, ProcessFacts, ThreadStack
from hangwatch_agent.capture.proc import descriptors, system_calls
from hangwatch_agent.capture.proc.descriptors import filesystem_of
from hangwatch_agent.capture.proc.lock_table import (
    held_locks,
    holder,
    holders,
    holds,
    living,
    open_files,
    owners_of,
)
from hangwatch_agent.capture.proc.system_calls import SystemCall
from hangwatch_agent.capture.stacks.py_spy import Dump, bare_name
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import PROC

# The functions whose loop tries the lock again and again, by the end of their file's path.
_POLLERS = (
    ("torch/utils/file_baton.py", "wait"),
    ("filelock/_api.py", "acquire"),
    ("filelock/_core/_acquire.py", "_poll_until_acquired"),  # from filelock 4.3 on
)
_KERNEL_CALLS = ("flock", "fcntl")
_SET_LOCK_AND_WAIT = (7, 38)  # F_SETLKW and F_OFD_SETLKW of fcntl(2)
MOST_THREADS = 512  # of a process that are looked at
_NAP_S = 2.0  # a process that polls sleeps no longer between two tries: SQLite 0.1 s
_IN_THE_WAY = re.compile(r"File exists: '(?P<path>/[^']+)'")
_PID = re.compile(r"\s*(\d{1,10})\s*")


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
    threads = dict(_waited_by_threads(facts, proc))
    blocked = (*_waited_in_kernel(facts), *threads)
    paths = [*blocked, *(_polled(dump) if dump else ()), *(path for path in told if path)]
    found = (_lock_file(path, facts.pid, path in blocked, proc, clock) for path in dict.fromkeys(paths))
    named = [replace(each, thread=threads.get(each.path)) for each in found]
    if not named and 0 < (facts.sleeps_s or 0.0) <= _NAP_S:
        return tuple(_locked_by_others(facts.pid, proc, clock))
    return tuple(named)


def left_behind(
    facts: ProcessFacts, error: ExceptionFacts | None, *, proc: Path = PROC, clock: Callable[[], float] = time.time
) -> tuple[LockFile, ...]:
    """The lock file that a process fails to make again and again, and that a dead process has made. Never raises."""
    told = _IN_THE_WAY.search(error.message) if error is not None and error.type == "FileExistsError" else None
    if told is None or not 0 < (facts.sleeps_s or 0.0) <= _NAP_S:
        return ()
    path = told["path"]
    maker = _PID.fullmatch(_beginning(proc / str(facts.pid) / "root" / path.lstrip("/")))
    found = _lock_file(path, facts.pid, blocked=False, proc=proc, clock=clock)
    gone = maker is not None and not found.owner_alive and living([int(maker[1])], 0, proc) is None
    return (replace(found, owner_pid=int(maker[1])),) if maker is not None and gone else ()


def _beginning(path: Path) -> str:
    """The first characters of a file, "" where they cannot be read. To open a pipe would be to wait for a writer."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 64).decode("ascii") if stat.S_ISREG(os.fstat(descriptor).st_mode) else ""
    except (OSError, UnicodeDecodeError):
        return ""
    finally:
        os.close(descriptor)


def _waited_in_kernel(facts: ProcessFacts) -> Iterator[str]:
    if facts.system_call in _KERNEL_CALLS and facts.blocked_on and facts.blocked_on.path.startswith("/"):
        yield facts.blocked_on.path


def _waited_by_threads(facts: ProcessFacts, proc: Path) -> Iterator[tuple[str, int]]:
    """The locks that other threads wait for while the main one waits for what they give, each with such a thread."""
    if facts.system_call != "futex":
        return
    for thread in islice(_threads(facts.pid, proc), MOST_THREADS):
        try:
            call = system_calls.current(facts.pid, thread, proc)
        except (OSError, ValueError):
            continue  # it has ended, or is not ours to look at
        fd = system_calls.descriptor(call, facts.pid, proc) if _waits_for_lock(call) else None
        file = descriptors.open_file(facts.pid, fd, proc) if fd is not None else None
        if file is not None and file.path.startswith("/"):
            yield file.path, thread


def _waits_for_lock(call: SystemCall) -> bool:
    return call.name == "flock" or (call.name == "fcntl" and call.arguments[1] in _SET_LOCK_AND_WAIT)


def _threads(pid: int, proc: Path) -> Iterator[int]:
    try:
        names = [path.name for path in (proc / str(pid) / "task").iterdir()]
    except OSError:
        return
    yield from (int(name) for name in names if name != str(pid))


def _polled(dump: Dump) -> Iterator[str]:
    frames = [frame for thread in dump.raw for frame in thread["frames"]]
    if not any(_polls(frame["filename"], bare_name(frame["name"])) for frame in frames):
        return
    for frame in frames:
        texts = {variable["name"]: variable["repr"] or "" for variable in frame["locals"] or ()}
        if "/filelock/" in frame["filename"] and (path := _path(texts.get("lock_filename", ""))):
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
    """The files that a process has open while another one, and not it, has locked them for writing.

    A process that has inherited the open file holds the lock too, and waits for nothing, as the ranks below
    `flock FILE torchrun ...`.
    """
    locks = [lock for lock in held_locks(proc) if lock["access"] == "WRITE"]
    files = open_files(waiter, {int(lock["inode"]) for lock in locks}, proc) if locks else {}
    for path, found in files.items():
        pids = owners_of(found, locks)
        owner = holder(pids, found, waiter, proc)
        own = waiter in pids or holds(waiter, found, proc, for_writing=True)
        if owner is not None and not own:
            age = max(clock() - found.st_mtime, 0.0)
            yield LockFile(path, owner, True, age, inferred=True, filesystem=filesystem_of(waiter, path, proc) or "")


def _lock_file(path: str, waiter: int, blocked: bool, proc: Path, clock: Callable[[], float]) -> LockFile:
    """`blocked` says that the kernel keeps the process waiting: then the lock is held, by whichever process."""
    seen = proc / str(waiter) / "root" / path.lstrip("/")  # as the waiter sees it, in its own mount namespace
    filesystem = filesystem_of(waiter, path, proc) or ""
    try:
        found = seen.stat()
    except OSError:
        return LockFile(path, None, blocked, 0.0, filesystem=filesystem)
    taken = owners_of(found, held_locks(proc))
    owners = taken or holders(found, waiter, proc)
    alive = holder(taken, found, waiter, proc) if taken else living(owners, waiter, proc)
    if blocked and alive is None and holds(waiter, found, proc):
        alive = waiter  # by another open file, which a thread of it has
    unknown = blocked or any(pid <= 0 for pid in owners)  # an open-file-description lock belongs to no process
    age = max(clock() - found.st_mtime, 0.0)
    return LockFile(path, alive, alive is not None or unknown, age, filesystem=filesystem)
