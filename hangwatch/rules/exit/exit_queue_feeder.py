"""The feeder thread of a multiprocessing queue that no process empties."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.leaving import leaving
from hangwatch.model import ThreadStack
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.lingering import cannot_exit
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.frames import name_of


def queue_feeder(case: Case) -> Finding | None:
    """multiprocessing waits at the exit for a queue that no process empties."""
    held = leaving(case, Doing.QUEUE_FEEDER)
    if not held:
        return None
    writing = [view for view in held if _feeder(view) is not None]
    return cannot_exit(
        case,
        "exit-queue-feeder",
        held,
        "a multiprocessing queue still holds data, and no process reads it",
        sure=len(writing) == len(held),
        evidence=(
            f"the main thread of rank {held[0].rank} is in Queue._finalize_join, at the exit of the interpreter",
            *(
                f"the queue's feeder thread of rank {view.rank} waits in a write to its pipe"
                for view in writing[: words.SHOWN]
            ),
        ),
    )


def _feeder(view: RankView) -> ThreadStack | None:
    return next(
        (each for each in view.evidence.stacks if each.frames and name_of(each.frames[0].function) == "_send"), None
    )
