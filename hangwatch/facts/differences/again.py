"""A rank that makes a call once more than it ever does in one step: it repeats that step, or a part of it.

A retry after an error that was caught, most of the time. From then on the calls of that rank are mispaired, and it is
to the others as if it were alone in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.call_site import Site, in_backward, site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.last_calls import last_call
from hangwatch.facts.calls.places_in_step import HABITUAL_STEPS
from hangwatch.facts.case import Case, once
from hangwatch.facts.differences.level import steps_apart
from hangwatch.facts.uncounted import failed_uncounted
from hangwatch.model import LoopFacts, StepName
from hangwatch.ranks.ledger import Step
from hangwatch.ranks.sides import spread
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Within
from hangwatch.stacks.frames import callers_of


@dataclass(frozen=True)
class Again:
    """In `step`, `rank` makes its call from `place` for more than the `usual` times.

    Without a place they are DDP's own, in forward and in backward, of which a board lists none.
    """

    rank: int
    place: Site | None
    step: StepName
    times: int
    usual: int
    steps: int  # earlier ones, with `usual` of these calls in each

    @property
    def call(self) -> str:
        if self.place is None:
            return "the collectives of DDP"
        return self.place.kind or "a collective"

    @property
    def counted(self) -> str:
        made, usual = (words.plural(times, "time") for times in (self.times, self.usual))
        return (
            f"in {words.step(self.step)}, rank {self.rank} made {self.call} {made}, and {usual} in each of"
            f" {words.plural(self.steps, 'step')} before"
        )


@once
def made_again(case: Case) -> tuple[Again, ...]:
    """Those of few ranks, where no other rank stands in that call, nor made it as often in its step."""
    found = [again for view in case if (again := _again(case, view)) is not None]
    few = 0 < 2 * len(found) <= len(case.ranks) and not steps_apart(case)
    if not few or len({each.place for each in found}) > 1:
        return ()
    blamed, place = {each.rank for each in found}, found[0].place
    others = [view for view in case if view.rank not in blamed]
    if place is None and any(_is_ddps_own(view) and view.step == found[0].step for view in others):
        return ()  # they are where DDP communicates too, in that very step
    return () if any(_place(case, view) == place and _stands(case, view) for view in others) else tuple(found)


def due_instead(case: Case, again: Again) -> Site | None:
    """The call that came next, in each step before, once that one had been made as often as ever; None where they vary.

    The other ranks have made it in this step, or stand in it.
    """
    sites = sites_of(case)
    steps = [places for places in sites.earlier_steps(again.rank).values() if again.place in places]
    after = {places[_last(places, again.place) :][1:2] for places in map(tuple, steps)}
    due = next(iter(after))[0] if len(after) == 1 and () not in after else None
    others = [rank for rank in case.ranks if rank != again.rank]
    made = due is not None and any(
        due == sites.now(rank) or due in sites.in_step(rank, again.step.step) for rank in spread(others)
    )
    return due if made else None


def _last(places: Sequence[Site], place: Site | None) -> int:
    return max(at for at, each in enumerate(places) if each == place)


def _again(case: Case, view: RankView) -> Again | None:
    steps = case.ledger.steps(view.rank)
    if not _stands(case, view) or not steps or view.step.step is None or steps[-1].step != view.step.step:
        return None
    if view.loader is not None and view.loader.exhausted:
        return None  # where a trainer draws ahead, no draw begins the step of the last batch
    place = _place(case, view)
    if place is None and not _is_ddps_own(view):
        return None
    counts = _unlisted(case, view, steps) if place is None else _from(case, view, place, steps)
    *before, now = counts
    usual = [count for count in before if count]
    if len(usual) < HABITUAL_STEPS or len(set(usual)) > 1 or now <= usual[0]:
        return None
    return Again(view.rank, place, view.step, now, usual[0], len(usual))


def _stands(case: Case, view: RankView) -> bool:
    """It waits in a call of its training thread's, or ended in one."""
    return view.rank in case.blocked or (view.failed and last_call(case, view) is not None)


def _place(case: Case, view: RankView) -> Site | None:
    if view.rank in case.blocked:
        place = sites_of(case).now(view.rank)
    else:
        last = last_call(case, view)
        place = last.site if last is not None else None
    listed = any(place in made for made in sites_of(case).by_step(view.rank).values())
    return place if listed or not _is_ddps_own(view) else None


def loop_in_its_step(view: RankView) -> LoopFacts | None:
    """The loop around its call, if it lies within a step: in another loop, or below the line that draws the batches.

    That line is a trainer's call, where the loop over the batches is in a package.
    """
    loop, drawn = view.now.loop, view.loader.where if view.loader is not None else None
    if loop is None or drawn is None:
        return loop if loop is not None and loop.outer else None
    if loop.where.source_line == drawn.source_line:
        return None
    if loop.outer:
        return loop
    callers = callers_of(view.evidence.main_stack, loop.where)
    return loop if any(each.source_line == drawn.source_line for each in callers) else None


def _from(case: Case, view: RankView, place: Site, steps: Sequence[Step]) -> list[int]:
    """How many of the recorded calls of each step came from there."""
    made = sites_of(case).by_step(view.rank)
    return [made.get(each.step, []).count(place) for each in steps]


def _is_ddps_own(view: RankView) -> bool:
    """The call in which it stands was issued by DDP: it is of its gradients or of its buffers, and on no board."""
    return not view.now.within.isdisjoint((Within.BACKWARD, Within.BUFFERS))


def _unlisted(case: Case, view: RankView, steps: Sequence[Step]) -> list[int]:
    """How many collectives of each step no Python code issued."""
    listed: dict[int, int] = {}
    for call in case.ledger.calls(view.rank).values():
        step = case.ledger.step_of(view.rank, call)
        if step is not None and not in_backward(call) and site(call) is not None:
            listed[step] = listed.get(step, 0) + 1
    *before, now = [sum(each.counts.values()) - listed.get(each.step, 0) for each in steps]
    groups = case.ledger.groups_of(view.rank)
    return [*before, now + any(failed_uncounted(view, case.ledger, group) for group in groups)]
