"""Lock files: the process that made one is dead, and no other process will ever remove it."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, Culprit, LockFile, Stage, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing

FRESH_S = 5.0  # seconds; the process that made a lock may be about to open or to remove it


def stale_file_lock(case: Case) -> Finding | None:
    """A rank polls for a lock file that no living process holds."""
    waiting = [(view, lock) for view in case if (lock := _stale(view)) is not None]
    if not waiting:
        return None
    view, lock = waiting[0]
    ranks = [each.rank for each, _ in waiting]
    settled = all(each.steady and found.age_s > FRESH_S for each, found in waiting)
    owner = f"pid {lock.owner_pid}, which is dead" if lock.owner_pid else "no living process"
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


def _stale(view: RankView) -> LockFile | None:
    if view.dead or view.main.doing is not Doing.FILE_LOCK:
        return None
    return next((lock for lock in view.evidence.lock_files if not lock.owner_alive), None)
