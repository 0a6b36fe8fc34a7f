"""Ranks that are calls ahead in a round of calls from one place, as a loop over the parameters of a model makes them.

The calls of a round are alike in operation and place, and their sizes or roots tell them apart. Where a rank's call is
one that in all its rounds before came behind the call of the other ranks, it has left that one out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangwatch.facts.call_site import Site, site
from hangwatch.facts.calls.call_sites import HABIT
from hangwatch.facts.calls.mismatches import Mismatch, Shape, differing, mispaired, shape
from hangwatch.facts.case import Case, once
from hangwatch.ranks.sides import spread

_CONTEXT = 2  # calls before that tell where in its round a rank is
_MOST = 16  # calls of a round that are looked for behind the one that was due


@dataclass(frozen=True)
class OutOfRound:
    """`ranks` left out `missing` calls, of which `due` is the first, and made `own`, unlike in `rounds` before."""

    found: Mismatch
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    place: Site
    due: Shape
    own: Shape
    missing: int
    rounds: int


@once
def out_of_round(case: Case) -> OutOfRound | None:
    """By the calls under the first number that differs; None where both sides may be ahead, or the other one lags."""
    found = mispaired(case)
    sides = differing(found.calls) if found is not None else {}
    if found is None or len(sides) != 2:
        return None
    places = {site(call) for call in found.calls.values()}
    place = places.pop()
    if places or place is None:
        return None
    one, other = (tuple(ranks) for ranks in sides.values())
    each = [_ahead(case, found, place, *way) for way in ((one, other), (other, one))]
    known = [ahead for ahead in each if ahead is not None]
    return known[0] if len(known) == 1 else None


def _ahead(
    case: Case, found: Mismatch, place: Site, ranks: tuple[int, ...], others: tuple[int, ...]
) -> OutOfRound | None:
    """All of `ranks` are, by their own rounds."""
    due, own = shape(found.calls[others[0]]), shape(found.calls[ranks[0]])
    each = [_missing(_rounds(case, found, rank, place), due, own) for rank in spread(ranks)]
    if None in each or len({missing for missing, _ in filter(None, each)}) != 1:
        return None
    missing, rounds = each[0] or (0, 0)
    return OutOfRound(found, ranks, others, place, due, own, missing, rounds)


def _rounds(case: Case, found: Mismatch, rank: int, place: Site) -> list[Shape]:
    """What `rank` called from that place before, in its order."""
    calls = case.ledger.calls_in(rank, found.group.name)
    made = sorted((call.seq, call) for call in calls if call.seq < found.seq and site(call) == place)
    return [shape(call) for _, call in made]


def _missing(made: Sequence[Shape], due: Shape, own: Shape) -> tuple[int, int] | None:
    """How many calls lie between the last one made and `own` in each round before, and how many rounds show it."""
    last = tuple(made[-_CONTEXT:])
    counts = set()
    rounds = 0
    for start in range(len(made) - _CONTEXT):
        behind = made[start + _CONTEXT : start + _CONTEXT + _MOST]
        if tuple(made[start : start + _CONTEXT]) != last:
            continue
        if behind[0] != due or own not in behind[1:]:
            return None
        rounds += 1
        counts.add(behind.index(own, 1))
    return (counts.pop(), rounds) if rounds >= HABIT and len(counts) == 1 else None
