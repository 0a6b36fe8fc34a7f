"""Ranks in a backward under a condition, and ranks behind that condition in the same loop with as many updates.

DDP's gradients are reduced by C++ code, so no call site tells which of several backwards of a turn a rank has made. The
counts of optimizer steps and the two lines at which the ranks stand do.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.case import Case, once
from hangwatch.model import Condition, Frame, LoopFacts
from hangwatch.ranks.sides import by_value
from hangwatch.ranks.view import RankView


@dataclass(frozen=True)
class PastAnUpdate:
    """`inside` stand at `within`, under `condition`, and `past` behind it, at `behind`; each made `updates` of them."""

    past: tuple[int, ...]
    inside: tuple[int, ...]
    condition: Condition
    within: Frame
    behind: Frame
    updates: int


@once
def past_an_update(case: Case) -> PastAnUpdate | None:
    """Both sides were level at the begin of a step on record, and all stand in calls of one loop."""
    views = list(case)
    sides = by_value({view.rank: view.where for view in views if view.where is not None and view.rank in case.blocked})
    places = sorted(sides, key=lambda place: place.line)
    if len(places) != 2 or sum(map(len, sides.values())) < case.size or not _level(views):
        return None
    within, behind = places
    loops = [case.ranks[sides[place][0]].now.loop for place in places]
    if loops[0] is None or loops[1] is None or loops[0].where != loops[1].where:
        return None
    around = _around(within, loops[0], loops[1])
    if len(around) != 1 or around[0].asks == "alike":
        return None
    updates = views[0].reading.progress.optimizer_steps if views[0].reading is not None else 0
    return PastAnUpdate(tuple(sides[behind]), tuple(sides[within]), around[0], within, behind, updates)


def _around(within: Frame, there: LoopFacts, behind: LoopFacts) -> list[Condition]:
    """The conditions on an update that end behind the line `within`, and begin ahead of it: they stand around it."""
    ends_behind = [each for each in behind.updates if each not in there.updates]
    return [each for each in ends_behind if each.where.file == within.file and each.where.line < within.line]


def _level(views: list[RankView]) -> bool:
    """All have made as many optimizer steps, and began one step on record with as many of them and of calls."""
    readings = [view.reading for view in views if view.reading is not None]
    made = {reading.progress.optimizer_steps for reading in readings}
    if len(readings) < len(views) or len(made) != 1 or made == {0}:
        return False
    begun = [
        {(each.step, each.optimizer_steps, tuple(sorted(each.issued.items()))) for each in reading.steps}
        for reading in readings
    ]
    return bool(set.intersection(*begun))
