"""The feeder thread of a multiprocessing queue that no process empties."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.facts.leaving import leaving, lingering_status
from hangwatch.model import Certainty, ThreadStack
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.frames import name_of


def queue_feeder(case: Case) -> Finding | None:
    """multiprocessing waits at the exit for a queue that no process empties."""
    held = leaving(case, Doing.QUEUE_FEEDER)
    if not held:
        return None
    ranks = [view.rank for view in held]
    writing = [view for view in held if _feeder(view) is not None]
    return Finding(
        "exit-queue-feeder",
        Certainty.PROVEN if len(writing) == len(held) else Certainty.LIKELY,
        f"Training is over, but {case.name(ranks)} cannot exit: a multiprocessing queue still holds data, and no"
        " process reads it.",
        culprits=tuple(view.culprit() for view in held),
        victims=(),
        evidence=(
            f"the main thread of rank {held[0].rank} is in Queue._finalize_join, at the exit of the interpreter",
            *(f"the queue's feeder thread of rank {view.rank} waits in a write to its pipe" for view in writing[:8]),
        ),
        status=lingering_status(held),
        awaited=tuple(ranks),
    )


def _feeder(view: RankView) -> ThreadStack | None:
    return next(
        (each for each in view.evidence.stacks if each.frames and name_of(each.frames[0].function) == "_send"), None
    )
