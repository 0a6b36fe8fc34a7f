"""Ranks in a call that all have made at the ends of their epochs alone, while their data is not exhausted."""

from __future__ import annotations

from itertools import pairwise

from hangwatch.facts.call_site import Site
from hangwatch.facts.call_sites import HABIT, sites_of
from hangwatch.facts.case import Case, once
from hangwatch.facts.skip_paths import ways_past
from hangwatch.ranks.sides import spread


@once
def ended_early(case: Case) -> tuple[int, ...]:
    """The fewer ranks, where the others wait in calls of their steps.

    Below a trainer, whose loop is not in the program, no line shows that a rank has left it.
    """
    found = tuple(rank for rank in case.blocked if _has_data_left(case, rank) and _is_at_an_end(case, rank))
    others = [rank for rank in case.blocked if rank not in found]
    in_steps = all(sites_of(case).regular(rank) for rank in others)
    return found if others and len(found) <= len(others) and in_steps else ()


def _has_data_left(case: Case, rank: int) -> bool:
    loader = case.ranks[rank].loader
    return loader is not None and not loader.exhausted and loader.drawn < (loader.length or 0)


def _is_at_an_end(case: Case, rank: int) -> bool:
    place = sites_of(case).now(rank)
    if place is None or any(way.inner and way.asks != "alike" for way in ways_past(case, place)):
        return False  # a condition leads there, also amid an epoch
    others = spread(other for other in case.ranks if other != rank)
    return all(_ended_epochs_there(case, each, place) for each in (rank, *others))


def _ended_epochs_there(case: Case, rank: int, place: Site) -> bool:
    """It has called there, in its earlier steps, in the last ones of its epochs and in no other."""
    ends = {one.step for one, two in pairwise(case.ledger.steps(rank)) if one.epoch != two.epoch}
    now = case.ranks[rank].step.step
    made = {step for step, places in sites_of(case).by_step(rank).items() if step != now and place in places}
    return len(made) >= HABIT and made <= ends
