"""Locks that ranks and their processes wait for while another living process holds them: its waiters, its holder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.child import CHILD_IDLE_CPU_S, Child, waits_for_children
from hangwatch.facts.processes.data_loading import Feeding, Worker
from hangwatch.model import Frame, LockFile, LockOwner, ProcessFacts
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.frames import user_frame

_TAKES = re.compile(r"^(async )?with\b|\.acquire\(")
KERNEL_CALLS = frozenset({"flock", "fcntl"})
SHARED = ("nfs", "lustre", "gpfs", "ceph", "beegfs", "fuse", "cifs", "smb", "9p", "afs", "gfs2", "ocfs2")
_DATABASE = ("-shm", "-wal", "-journal")  # SQLite's files beside the database


def takes_a_lock(case: Case, where: Frame | None) -> bool:
    """The quoted line takes one of the program's own: `with`, or a call of `acquire`. Else a library may wait there."""
    return _TAKES.search(case.text_of(where)) is not None


@dataclass(frozen=True)
class LockWait:
    """One process that waits for a lock: the rank itself, or `child`, a process of it that the rank waits for."""

    view: RankView
    lock: LockFile
    child: Child | None = None

    @property
    def facts(self) -> ProcessFacts | None:
        return self.child.facts if self.child is not None else self.view.evidence.process

    @property
    def where(self) -> Frame | None:
        stacks = self.child.evidence.stacks if self.child is not None else self.view.evidence.stacks
        own = next((stack for stack in stacks if stack.thread_id == self.lock.thread), None)
        if own is not None and (found := user_frame(own.frames)) is not None:
            return found
        return (self.child.where if self.child is not None else None) or self.view.where

    @property
    def steady(self) -> bool:
        return self.view.steady and (self.child is None or self.child.steady)

    @property
    def in_kernel(self) -> bool:
        """The kernel keeps it waiting, without a timeout, until the lock is free."""
        facts = self.facts
        return (
            not self.lock.inferred and facts is not None and facts.system_call in KERNEL_CALLS and not facts.has_alarm
        )

    @property
    def owner(self) -> LockOwner | None:
        return self.lock.owner

    @property
    def holder(self) -> int | None:
        """The rank that holds the lock itself."""
        return self.owner.rank if self.owner is not None and self.owner.role == "rank" else None

    @property
    def by_itself(self) -> bool:
        """The process that waits has the lock, by another open file: another thread of it may let go."""
        return self.owner is not None and self.facts is not None and self.owner.pid == self.facts.pid

    @property
    def name(self) -> str:
        """`rank 1`, or `loader worker 0 of rank 1 (pid 88)`."""
        if self.child is None:
            return f"rank {self.view.rank}"
        kind = f"loader worker {self.child.name}" if isinstance(self.child, Worker) else "a child process"
        return f"{kind} of rank {self.view.rank} (pid {self.child.pid})"


def held_lock(view: RankView) -> LockFile | None:
    """The lock file of another living process that this rank waits for, or tries to get again and again."""
    if view.now.in_collective or view.works:
        return None
    return _held(view.evidence.lock_files)


def lock_waits(case: Case) -> list[LockWait]:
    """The waits for locks that living processes hold, of ranks that nothing else keeps."""
    return [wait for view in case for wait in _waits_of(view)]


def lock_wait(view: RankView) -> LockWait | None:
    """The first wait of one rank, or of a process that it waits for, for a lock that a living process holds."""
    return next(_waits_of(view), None)


def stale_lock(view: RankView) -> LockFile | None:
    """The lock file that a rank waits for and no living process holds.

    A lock file of the program's own has no frame that tells of it: there its text names the dead process.
    """
    if view.dead or view.now.in_collective:
        return None
    known = view.main.doing is Doing.FILE_LOCK
    return next((lock for lock in view.evidence.lock_files if not lock.owner_alive and (known or lock.owner_pid)), None)


def _waits_of(view: RankView) -> Iterator[LockWait]:
    if view.dead or view.stopped or view.now.in_collective or view.works:
        return
    if (lock := held_lock(view)) is not None:
        yield LockWait(view, lock)
    else:
        yield from _waits_of_children(view)


def _waits_of_children(view: RankView) -> Iterator[LockWait]:
    feeding = Feeding(view)
    others = map(Child, view.evidence.children) if waits_for_children(view) else ()
    children: Iterable[Child] = feeding.busy if feeding.waits else others
    for child in children:
        lock = _held(child.evidence.lock_files)
        if lock is not None and not child.dead and not child.works:
            yield LockWait(view, lock, child)


def _held(locks: Iterable[LockFile]) -> LockFile | None:
    return next((lock for lock in locks if lock.owner_alive), None)


def owner_works(case: Case, owner: LockOwner | None) -> bool:
    """The process that holds the lock shows a sign of work: it may let go of it."""
    if owner is None:
        return False
    view = case.ranks.get(owner.rank) if owner.rank is not None and owner.role == "rank" else None
    if view is not None:
        return case.works(view)
    return (owner.cpu_delta_s or 0.0) > CHILD_IDLE_CPU_S


def circle(case: Case, waits: Iterable[LockWait]) -> list[LockWait]:
    """Waits for locks whose holders wait for each other's ranks, by locks and collectives alike; empty without any.

    A rank that waits for its own child, which waits for a lock of that rank, is the shortest circle.
    """
    known = list(waits)
    by_rank: dict[int, list[LockWait]] = {}
    for each in known:
        by_rank.setdefault(each.view.rank, []).append(each)
    for start in known:
        path = _path_back(case, start, by_rank, ())
        if path:
            return path
    return []


def _path_back(
    case: Case, wait: LockWait, by_rank: dict[int, list[LockWait]], seen: tuple[LockWait, ...]
) -> list[LockWait]:
    """The waits that lead from the holder of a lock back to the rank that waits for it."""
    path = (*seen, wait)
    if wait.holder is None or wait in seen or wait.by_itself:
        return []
    first = path[0].view.rank
    reached = {wait.holder, *_awaited_by(case, wait.holder)}
    if first in reached:
        return list(path)
    following = (each for rank in sorted(reached) for each in by_rank.get(rank, ()) if each.view.rank != first)
    return next((found for each in following if (found := _path_back(case, each, by_rank, path))), [])


def _awaited_by(case: Case, rank: int) -> frozenset[int]:
    """The ranks that `rank` waits for in a collective."""
    entry = case.blocked.get(rank)
    return frozenset(entry.need.absent) if entry is not None and entry.need is not None else frozenset()


# ------------------------------------------------------------------------------------------ in words

_KINDS = {
    "loader-worker": "a loader worker",
    "launcher": "the launcher",
    "compile-worker": "a compile worker",
}


def lock_name(lock: LockFile) -> str:
    """`the lock file /data/x.lock`, `the lock of /data/loss.csv`; of SQLite's own files the database."""
    database = next((lock.path.removesuffix(end) for end in _DATABASE if lock.path.endswith(end)), "")
    if database:
        return f"a lock of the database {database}"
    if lock.path.endswith((".db", ".sqlite", ".sqlite3")):
        return f"a lock of the database {lock.path}"
    return f"the lock file {lock.path}" if "lock" in PurePath(lock.path).name.lower() else f"the lock of {lock.path}"


def holder_name(lock: LockFile) -> str:
    """`rank 0 (pid 40)`, `pid 4711 (python prepare.py)`, as far as it is known."""
    owner = lock.owner
    if owner is None:
        if lock.owner_pid is not None:
            return f"pid {lock.owner_pid}"
        return "a process that cannot be seen from here" + (" (another machine may)" if on_network(lock) else "")
    if owner.role == "rank":
        return f"rank {owner.rank} (pid {owner.pid})"
    return f"pid {owner.pid}{_command(owner)}"


def holds(lock: LockFile) -> str:
    """`which pid 4711 (python prepare.py) holds, no process of this job`."""
    owner = lock.owner
    told = f", {belongs(owner)}" if owner is not None and owner.role != "rank" else ""
    return f"which {holder_name(lock)} holds{told}"


def _command(owner: LockOwner) -> str:
    return f" (`{words.command(owner.command)}`)" if owner.command else ""


def belongs(owner: LockOwner) -> str:
    """What the holder is to the job."""
    if owner.role == "rank":
        return f"rank {owner.rank} of this job"
    if owner.role == "leftover":
        return "left over from an earlier run, whose launcher is gone"
    if owner.role == "stranger":
        return "no process of this job"
    if owner.role == "orphan":
        return "left behind by " + (f"rank {owner.rank}" if owner.rank is not None else "this job")
    if owner.rank is None:
        return _KINDS.get(owner.role, "a process of this job")
    return f"{_KINDS.get(owner.role, 'a child process')} of rank {owner.rank}"


def on_network(lock: LockFile) -> bool:
    """Processes of other machines can hold it too."""
    return lock.filesystem.startswith(SHARED)
