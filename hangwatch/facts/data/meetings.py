"""Ranks that wait for all workers by other means than a group, such as Ray Train's `report`, which others went by.

No record tells which workers have come to such a call. Where the others have drawn from a later epoch, behind an epoch
that was alike on all ranks, they will not come to it any more; nor where they are in a later step, and the source asks
for the rank on the way to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.calls.skip_paths import ways_to
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.batches import first_uneven
from hangwatch.facts.processes.ended_ahead import are_ahead
from hangwatch.model import Bypass, Collective, Frame
from hangwatch.stacks.activity import Doing


@dataclass(frozen=True)
class PassedMeeting:
    """The ranks `waiting` stand in `call` at `where`, `past` are in a later epoch, or step, in a collective."""

    waiting: tuple[int, ...]
    past: tuple[int, ...]
    call: str
    where: Frame
    ways: tuple[Bypass, ...]


@once
def passed_meeting(case: Case) -> PassedMeeting | None:
    """The call that some ranks went by; None where all may come to it yet."""
    waiting = [view for view in case if view.now.doing is Doing.MEETING]
    past = [view for view in case if view not in waiting]
    places = {(view.where, view.step.epoch) for view in waiting}
    if len(places) != 1 or not past or first_uneven(case) is not None:
        return None
    where, epoch = places.pop()
    if where is None or any(view.rank not in case.blocked for view in past):
        return None
    frames = next((stack.frames for stack in waiting[0].evidence.stacks if where in stack.frames), ())
    ways = tuple(way for way in ways_to(case, Collective("", 0, "", frames=frames)) if way.asks != "alike")
    ranks, others = (tuple(view.rank for view in views) for views in (waiting, past))
    if epoch is None:
        gone = any(way.asks == "rank" for way in ways) and are_ahead(case, others, ranks)
    else:
        gone = all((view.step.epoch or 0) > epoch for view in past)
    if not gone:
        return None
    return PassedMeeting(ranks, others, waiting[0].now.call, where, ways)
