"""Calls of a loop within a step that ranks made once more, by the order of calls: what its source says of its end."""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.facts.call_site import path
from hangwatch.facts.calls.inner_loops import loop_of
from hangwatch.facts.calls.queues import assessed, departure_of
from hangwatch.facts.case import Case
from hangwatch.model import LoopFacts
from hangwatch.rules.by_queues import by_queues
from hangwatch.rules.finding import Finding
from hangwatch.rules.turns import decides, equal_turns, which_ends


def another_turn(case: Case, cause: str) -> Finding | None:
    """Ranks made calls of such a loop once more, where its source says that each rank ends it by itself."""
    loop = loop_of_the_turn(case)
    found = by_queues(case) if loop is not None and decides(loop) and departure_of(case) is not None else None
    if found is None or loop is None:
        return None
    summary = f"{found.summary.removesuffix('.')}, in the loop at {words.place(loop.where)}, {which_ends(loop)}."
    culprits = tuple(replace(each, where=loop.where) for each in found.culprits)
    fix = equal_turns(loop)
    return replace(found, cause=cause, summary=summary, culprits=culprits, fix=fix, status=case.failed_status)


def loop_of_the_turn(case: Case) -> LoopFacts | None:
    """The loop within a step around calls that ranks made once more; None where they did not, or it is not known."""
    queued = assessed(case).found if case.in_trouble else None
    departure = queued.departure if queued is not None else None
    return loop_of(case, path(departure.own.frames)) if departure is not None and departure.again else None
