"""Calls of the present step from places that are new to all ranks, and the ranks that have gone by without them.

Where steps are not over yet their numbers of calls say nothing, and calls of one kind are paired in silence. What tells
the sides apart is the order: the call that followed the new ones is a usual one, and the other ranks have made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangwatch.facts.call_site import Site, site
from hangwatch.facts.call_sites import HABIT, sites_of
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective
from hangwatch.ranks.sides import spread


@dataclass(frozen=True)
class GoneBy:
    """`makers` made `calls` in their present step, which no rank had made before; `others` went by without them."""

    makers: tuple[int, ...]
    others: tuple[int, ...]
    calls: tuple[Collective, ...]  # of the first of `makers`
    follows: Site  # the usual call that came after them, which the others have made too


@once
def gone_by(case: Case) -> GoneBy | None:
    """The ranks on both sides, if all wait in one step of one group and the order is known."""
    entries = [entry for entry in case.blocked.values() if entry.group is not None and entry.call is not None]
    groups = {id(entry.group) for entry in entries}
    steps = {case.ranks[entry.rank].step.step for entry in entries}
    if len(entries) < 2 or len(entries) < len(case.blocked) or len(groups) != 1 or len(steps) != 1 or None in steps:
        return None
    ranks = [entry.rank for entry in entries]
    made = {rank: _present(case, rank) for rank in ranks}
    known = _earlier(case, ranks)
    new = {rank: tuple(call for call in calls if site(call) not in known) for rank, calls in made.items()}
    makers = tuple(rank for rank in ranks if new[rank])
    others = tuple(rank for rank in ranks if not new[rank])
    if not known or not makers or not others or len({_sites(new[rank]) for rank in makers}) != 1:
        return None
    follows = _follows(made[makers[0]], new[makers[0]])
    if follows is None or not all(_has_reached(made[rank], follows) for rank in others):
        return None
    return GoneBy(makers, others, new[makers[0]], follows[0])


def _present(case: Case, rank: int) -> list[Collective]:
    """The calls of the present step of `rank`, in order, those that were recorded with their place."""
    ledger, now = case.ledger, case.ranks[rank].step.step
    calls = ledger.calls(rank).values()
    return [call for call in calls if site(call) is not None and ledger.step_of(rank, call) == now]


def _earlier(case: Case, ranks: Sequence[int]) -> set[Site]:
    """The places of all earlier steps on record; nothing where these are too few to know what is usual."""
    sites, found = sites_of(case), set[Site]()
    for rank in spread(ranks):
        before = [places for step, places in sites.by_step(rank).items() if step != case.ranks[rank].step.step]
        if len(before) < HABIT:
            return set()
        found.update(place for places in before for place in places)
    return found


def _sites(calls: Sequence[Collective]) -> tuple[Site | None, ...]:
    return tuple(site(call) for call in calls)


def _follows(made: Sequence[Collective], new: Sequence[Collective]) -> tuple[Site, int] | None:
    """The first call after the last new one, and how often it had been made in that step by then."""
    last = made.index(new[-1])
    places = [place for place in _sites(made[: last + 2]) if place is not None]
    return (places[-1], places.count(places[-1])) if len(places) == last + 2 else None


def _has_reached(made: Sequence[Collective], follows: tuple[Site, int]) -> bool:
    return _sites(made).count(follows[0]) >= follows[1]
