"""A rank that waits in a collective for ranks that wait for a file lock which it holds."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case, what
from hangwatch.model import Certainty, LockFile, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding


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
        f" {case.name(waiting)}, which {wait} that very lock{words.at(view.where)}.",
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
