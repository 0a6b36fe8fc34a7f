"""Few ranks together in a call that no rank has made before, to which a condition of the source leads."""

from __future__ import annotations

from hangwatch.facts.batches import first_uneven
from hangwatch.facts.call_site import Site
from hangwatch.facts.call_sites import sites_of
from hangwatch.facts.case import Case
from hangwatch.facts.skip_paths import ways_past
from hangwatch.ranks.sides import spread


def alone_together(case: Case) -> tuple[int, ...]:
    """The ranks, no more than half, at one place behind a condition; () where there are none.

    The others, for which they wait, stand in calls that they have made before: they are in their usual order.
    """
    if first_uneven(case) is not None or any(view.rank not in case.blocked for view in case if not view.dead):
        return ()
    by_place: dict[Site, list[int]] = {}
    for rank in case.blocked:
        if (place := sites_of(case).now(rank)) is not None:
            by_place.setdefault(place, []).append(rank)
    found = [ranks for ranks in by_place.values() if _are_alone(case, ranks)]
    return tuple(found[0]) if len(found) == 1 else ()


def _are_alone(case: Case, ranks: list[int]) -> bool:
    few = 2 <= len(ranks) <= len(case.blocked) / 2
    if not few or not all(_waits_behind_a_condition(case, rank) for rank in ranks):
        return False
    sites, together = sites_of(case), frozenset(ranks)
    others = [rank for rank in case.blocked if rank not in together]
    new = all(sites.regular(rank) is False and not sites.shared(rank, spread(others)) for rank in spread(ranks))
    return new and all(map(sites.regular, others)) and _wait_for(case, _awaited(case, ranks), together)


def _awaited(case: Case, ranks: list[int]) -> set[int]:
    needs = {id(need): need for rank in ranks if (need := case.blocked[rank].need) is not None}
    return {rank for need in needs.values() for rank in need.absent}


def _wait_for(case: Case, awaited: set[int], together: frozenset[int]) -> bool:
    """Each of them waits for one of the few: nothing else keeps it from their call."""
    needs = [case.blocked[rank].need if rank in case.blocked else None for rank in awaited]
    return all(need is not None and not together.isdisjoint(need.absent) for need in needs)


def _waits_behind_a_condition(case: Case, rank: int) -> bool:
    """It waits in a collective for a rank that is elsewhere, at a place to which a condition leads."""
    entry, place = case.blocked[rank], sites_of(case).now(rank)
    if entry.need is None or not entry.need.absent or entry.to_a_peer or not entry.activity.in_collective:
        return False
    ways = ways_past(case, place) if place is not None else ()
    return case.ranks[rank].now.guard == "rank" or any(way.inner and way.asks != "alike" for way in ways)
