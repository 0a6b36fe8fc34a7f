"""Ranks that a process holds: which other ranks they keep waiting, and whether they alone keep the job waiting."""

from __future__ import annotations

from collections.abc import Collection

from hangwatch.facts.case import Case
from hangwatch.model import Stage
from hangwatch.stacks.activity import Doing

_MEETING = frozenset({Doing.RENDEZVOUS, Doing.NEW_GROUP})


def kept_waiting(case: Case, ranks: Collection[int]) -> list[int]:
    """The ranks beside `ranks` that wait for others: in a collective, or for the world to come together."""
    waiting = (view for view in case if view.rank in case.blocked or view.now.doing in _MEETING)
    return [view.rank for view in waiting if view.rank not in ranks]


def others_awaited(case: Case, ranks: Collection[int]) -> bool:
    """Ranks beside `ranks` keep the job waiting too: they are awaited, or, where none is blocked, wait for no other."""
    if case.blocked:
        return not case.awaited() <= set(ranks)
    kept = {*ranks, *kept_waiting(case, ranks)}
    return any(not (view.dead or view.over or view.rank in kept) for view in case)


def stage_of_wait(case: Case, ranks: Collection[int]) -> Stage | None:
    """START where no rank is in a collective and none of `ranks` has issued anything; else None."""
    readings = [view.reading for view in case.views(ranks)]
    begun = any(each is None or each.progress.step >= 0 or each.progress.calls > 0 for each in readings)
    return None if case.blocked or begun else Stage.START
