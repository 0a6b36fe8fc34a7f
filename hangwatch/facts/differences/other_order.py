"""Asynchronous calls that ranks issued in another order: each was made by all, so none is left out or too many."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from hangwatch.facts.calls.mismatches import Mismatch, Token, both_ways, mispaired, token, tokens_before
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective
from hangwatch.ranks.sides import spread

_IN_FLIGHT = 8  # calls in flight that are looked at


@dataclass(frozen=True)
class OtherOrder:
    """From that number on `calls` of one side are those of the other side in another order; each side by its ranks."""

    found: Mismatch
    sides: tuple[tuple[int, ...], tuple[int, ...]]
    calls: tuple[tuple[Collective, ...], tuple[Collective, ...]]


@once
def other_order(case: Case) -> OtherOrder | None:
    """By the first number under which the calls differ; None where a call of one side is missing on the other."""
    found = mispaired(case)
    ways = both_ways(found) if found is not None else ()
    if found is None or not ways:
        return None
    one, other = ways[0]
    for count in range(2, _IN_FLIGHT + 1):
        runs = [_run(case, found, rank, count) for rank in (one[0], other[0])]
        if None in runs:
            return None
        first, second = ([token(call) for call in run or ()] for run in runs)
        if None in first or None in second:
            return None
        if Counter(first) == Counter(second):
            alike = _all_alike(case, found, one, first) and _all_alike(case, found, other, second)
            return OtherOrder(found, (one, other), (tuple(runs[0] or ()), tuple(runs[1] or ()))) if alike else None
    return None


def _run(case: Case, found: Mismatch, rank: int, count: int) -> list[Collective] | None:
    """The calls of `rank` from that number on, so many of them; None where it has not made as many."""
    calls = [case.ledger.call(rank, found.group.name, found.seq + place) for place in range(count)]
    return None if None in calls else [call for call in calls if call is not None]


def _all_alike(case: Case, found: Mismatch, ranks: tuple[int, ...], tokens: list[Token | None]) -> bool:
    runs = (_run(case, found, rank, len(tokens)) for rank in spread(ranks))
    return all(run is not None and [token(call) for call in run] == tokens for run in runs)


def had_that_order(case: Case, rank: int, calls: tuple[Collective, ...]) -> int:
    """In how many steps `rank` made the first two of `calls` right after each other, from where it made them now."""
    first, second = (token(call) for call in calls[:2])
    earlier = tokens_before(case, rank, calls[0])
    return sum(one == (step, first) and step is not None for one, (step, token) in pairwise(earlier) if token == second)
