"""Lock files: whoever made one is dead, and nobody will ever take it away."""

from __future__ import annotations

from ..activity import Doing
from ..records import Certainty, Culprit, LockFile, Stage, Status
from . import words
from .case import Case, RankView, what
from .finding import Finding

FRESH_S = 5.0  # who has made a lock may be about to open or to remove it


def stale_file_lock(case: Case) -> Finding | None:
    """A rank polls for a lock file that nobody alive holds."""
    waiting = [(view, lock) for view in case if (lock := _stale(view)) is not None]
    if not waiting:
        return None
    view, lock = waiting[0]
    ranks = [each.rank for each, _ in waiting]
    settled = all(each.steady and found.age_s > FRESH_S for each, found in waiting)
    owner = f"pid {lock.owner_pid}, which is dead" if lock.owner_pid else "nobody alive"
    owners = {found.owner_pid for _, found in waiting if found.owner_pid}
    return Finding(
        "stale-file-lock",
        Certainty.PROVEN if settled else Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} {words.verb(len(ranks), 'waits', 'wait')} for the lock file {lock.path},"
        f" which belongs to {owner}{words.at(view.where)}.",
        fix=f"rm {lock.path}",
        culprits=tuple(Culprit(None, pid, process="other") for pid in sorted(owners)),
        victims=tuple(sorted({*ranks, *case.blocked})),
        step=view.step,
        evidence=(
            f"{lock.path} is {words.duration(lock.age_s)} old, and no living process has it open or locked",
            *(f"rank {each.rank} (pid {each.pid}) polls for it{words.at(each.main.frame)}" for each, _ in waiting[:8]),
        ),
        status=Status.HUNG if settled else None,
        stage=Stage.START,
        awaited=tuple(ranks),
    )


def lock_across_collective(case: Case) -> Finding | None:
    """A rank waits in a collective for ranks that wait for a file lock which it holds itself."""
    by_pid = {view.pid: view for view in case if view.pid is not None}
    waits = [(view.rank, lock) for view in case for lock in view.evidence.lock_files]
    for rank, lock in waits:
        holder = by_pid.get(lock.owner_pid or 0)
        if holder is None:
            continue
        inside = case.blocked.get(holder.rank)
        same = (lock.path, lock.owner_pid)
        waiting = tuple(other for other, found in waits if (found.path, found.owner_pid) == same)
        if inside is not None and inside.need is not None and rank in inside.need.absent:
            return _held(case, holder, lock, waiting)
    return None


def _held(case: Case, holder: RankView, lock: LockFile, waiting: tuple[int, ...]) -> Finding:
    inside = case.blocked[holder.rank]
    view = case.ranks[waiting[0]]
    wait, asks = words.verb(len(waiting), "waits for", "wait for"), "waits for it"
    if lock.inferred:
        wait, asks = words.verb(len(waiting), "tries to get", "try to get"), "sleeps with that file open"
    certain = inside.certain and not lock.inferred and all(case.ranks[rank].steady for rank in waiting)
    return Finding(
        "user-code-blocked",
        Certainty.PROVEN if certain else Certainty.LIKELY,
        f"Rank {holder.rank} holds the file lock {lock.path} and waits in {what(inside)}{words.at(inside.where)} for"
        f" {case.name(waiting)}, who {wait} that very lock{words.at(view.where)}.",
        fix="let go of the lock before the collective: what is inside of a lock must not wait for those outside of it",
        culprits=(holder.culprit(),),
        victims=tuple(rank for rank in case.ranks if rank != holder.rank),
        step=holder.step,
        evidence=(
            f"pid {holder.pid} of rank {holder.rank} holds {lock.path}",
            *(f"rank {rank} {asks}{words.at(case.ranks[rank].where)}" for rank in waiting[: words.SHOWN]),
        ),
        status=Status.HUNG,
        awaited=(holder.rank,),
    )


def _stale(view: RankView) -> LockFile | None:
    if view.dead or view.main.doing is not Doing.FILE_LOCK:
        return None
    return next((lock for lock in view.evidence.lock_files if not lock.owner_alive), None)
