"""Few ranks together in a call that no rank has made before, to which a condition of the source leads."""

from __future__ import annotations

from hangwatch.facts.call_site import Site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import conditional, ways_past
from hangwatch.facts.calls.standing import by_site
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import first_uneven
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.sides import spread


def alone_together(case: Case) -> tuple[int, ...]:
    """The ranks, no more than half, at one place behind a condition; () where there are none.

    The others, for which they wait, stand in calls that they have made before: they are in their usual order.
    """
    if first_uneven(case) is not None or not case.all_wait:
        return ()
    found = [ranks for place, ranks in by_site(case).items() if _are_alone(case, place, ranks)]
    return tuple(found[0]) if len(found) == 1 else ()


def _are_alone(case: Case, place: Site, ranks: list[int]) -> bool:
    few = 2 <= len(ranks) <= len(case.blocked) / 2
    if not few or not all(_waits_for_others(case.blocked[rank]) for rank in ranks):
        return False
    if not conditional(ways_past(case, place)) and any(case.ranks[rank].now.guard != "rank" for rank in ranks):
        return False
    sites, together = sites_of(case), frozenset(ranks)
    others = [rank for rank in case.blocked if rank not in together]
    new = all(sites.is_new_to_all(rank, others) for rank in spread(ranks))
    return new and all(map(sites.regular, others)) and _wait_for(case, _awaited(case, ranks), together)


def _awaited(case: Case, ranks: list[int]) -> set[int]:
    needs = {id(need): need for rank in ranks if (need := case.blocked[rank].need) is not None}
    return {rank for need in needs.values() for rank in need.absent}


def _wait_for(case: Case, awaited: set[int], together: frozenset[int]) -> bool:
    """Each of them waits for one of the few: nothing else keeps it from their call."""
    return all(rank in case.blocked and not together.isdisjoint(case.blocked[rank].lacking) for rank in awaited)


def _waits_for_others(entry: Blocked) -> bool:
    """It is in a collective, for which a rank that is elsewhere is missing."""
    missing = entry.need is not None and bool(entry.need.absent)
    return missing and entry.activity.in_collective and not entry.to_a_peer
