"""The order in which a rank calls from its sites, in all groups: whether it keeps the order of its earlier steps.

Numbers are equal on all ranks where one of them left out a call and went on; the order of its call sites shows it.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hangwatch.facts.call_site import Site, in_backward, site
from hangwatch.facts.calls.call_sites import HABIT, sites_of
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective
from hangwatch.ranks.issuers import issuer
from hangwatch.ranks.sides import spread


def left_its_order(case: Case, rank: int) -> bool | None:
    """In its present step `rank` left the order of calls of all earlier ones; None where those were not alike.

    Only calls that Python code issued count, point-to-point ones too: their order on one rank is the program's own.
    """
    present, usual = present_and_usual(case, rank)
    return present != usual[: len(present)] if present and usual else None


def present_and_usual(case: Case, rank: int) -> tuple[list[Site], list[Site]]:
    """The calls of the present step of `rank` on its board, and those of each step before; [] where not alike."""
    view = case.ranks[rank]
    steps: dict[int, list[Site]] = {}
    for call in view.evidence.board_calls:
        place = site(call)
        if place is not None and call.step is not None and _of_training(case, rank, call):
            steps.setdefault(call.step, []).append(place)
    present = steps.pop(view.step.step, []) if view.step.step is not None else []
    whole = list(steps.values())[1:]  # the ring may have lost the beginning of the oldest
    return present, whole[0] if len(whole) >= HABIT and all(other == whole[0] for other in whole) else []


def out_of_turn(case: Case, rank: int) -> bool | None:
    """`rank` came to the call in which it waits from another one than in all turns before; None without turns.

    A call is a place and a group: one line may serve several groups in turn.
    """
    entry, calls = case.blocked.get(rank), _calls(case, rank)
    made = [(call.group, site(call)) for call in calls]
    if entry is None or entry.call is None or len(made) < 2 or calls[-1].seq != entry.seq:
        return None
    usual = Counter(one for one, two in pairwise(made[:-1]) if two == made[-1])
    return made[-2] not in usual if len(usual) == 1 and usual.total() >= HABIT else None


def jumped(case: Case, rank: int) -> tuple[Site, Site] | None:
    """(the site left out, the site of its call now): no rank has called here before right after its previous call.

    All its earlier calls from here, and those of the others, came right after the same call from another site.
    """
    order, here = _order(case, rank), sites_of(case).now(rank)
    if len(order) < 4 or here is None or order[-1] != here:
        return None
    own = {one for one, two in pairwise(order[:-1]) if two == here}
    usual = own | _before_each(case).get(here, set())
    if any(_begins_with(case, other, here) for other in spread(case.blocked)):
        return None
    if not own or len(usual) != 1 or not usual.isdisjoint((order[-2], here)):
        return None
    before = usual.pop()
    return (before, here) if before is not None else None


def _begins_with(case: Case, rank: int, place: Site) -> bool:
    """The first of all calls of `rank` came from `place`, and after none: what is forgotten came after others."""
    first = next(iter(sites_of(case).in_order(rank)), None)
    return first is not None and first.seq <= 1 and site(first) == place


@once
def _before_each(case: Case) -> dict[Site, set[Site | None]]:
    """For each site, the sites of the calls made right before it; calls that ranks are in now are left out."""
    found: dict[Site, set[Site | None]] = {}
    for rank in spread(case.blocked):
        for one, two in pairwise(_order(case, rank)[:-1]):
            if two is not None:
                found.setdefault(two, set()).add(one)
    return found


def _order(case: Case, rank: int) -> list[Site | None]:
    """Their sites; None for those of which no site is on record, such as those of the engine's own threads."""
    return [site(call) for call in _calls(case, rank)]


def _calls(case: Case, rank: int) -> list[Collective]:
    """The recorded calls of a rank, in all groups, as the thread that trains issued them."""
    return [call for call in sites_of(case).in_order(rank) if _of_training(case, rank, call)]


def _of_training(case: Case, rank: int, call: Collective) -> bool:
    """Issued by the thread that trains, or while gradients are computed; those of others come as chance has it."""
    thread = case.ranks[rank].now.thread
    return issuer(case.ledger, rank, call) in ("", thread) or in_backward(call)
