"""Ranks that come to the same calls at intervals of their own, each by its clock or by a count that it alone keeps.

Calls are paired by their numbers, not by steps: such calls fit together, however far apart the steps are in which the
ranks make them. A step in which one rank made them and another did not says nothing then. Where a rank left out a call
that all had made in equal steps before, its later ones are shifted, all by as many steps.

Steps themselves may be a rank's own: a client of federated averaging makes steps only in the rounds in which it was
chosen. Calls under one number are then now so many steps apart and now so many others, and no rank makes them at equal
intervals. Where the others do, it is a rank that left out its call more than once.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hangwatch.facts.call_site import Site, site
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, Divergence
from hangwatch.ranks.sides import by_value, spread

SHIFTS = 2  # changes of how far two ranks are apart, which one call left out or made too many cannot explain
OCCASIONS = 3  # steps in which a rank made these calls, at the least, for them to show intervals


def keep_own_intervals(case: Case, divergence: Divergence) -> bool:
    """Those with more calls in that step make them in other steps than those with fewer, from the first one on."""
    if not divergence.exact:
        return False
    *fewer, (_, most) = sorted(by_value(divergence.counts).items())
    asked = [rank for _, ranks in fewer for rank in spread(ranks)]
    if len(divergence.more) != 1 and not all(_has_own_steps(case, divergence.group, most[0], rank) for rank in asked):
        return False  # it leaves out some of those that the others make
    since = [_unlike_since(case, divergence.group, most[0], other) for other in asked]
    return bool(since) and all(step is not None and step <= divergence.step for step in since)


def _has_own_steps(case: Case, group: str, rank: int, other: int) -> bool:
    """`other` made such calls in a step in which `rank` made none."""
    mine, theirs = ({step.step: step.counts.get(group, 0) for step in case.ledger.steps(r)} for r in (rank, other))
    return any(made and mine.get(step) == 0 for step, made in theirs.items())


def _unlike_since(case: Case, group: str, rank: int, other: int) -> int | None:
    cache, asked = _cache(case), (group, rank, other)
    if asked not in cache:
        cache[asked] = _first_of_unlike(case, group, rank, other)
    return cache[asked]


@once
def _cache(case: Case) -> dict[tuple[str, int, int], int | None]:
    """One dict for each case, which its caller fills: the same is asked for each step in which the ranks differ."""
    return {}


def _first_of_unlike(case: Case, group: str, rank: int, other: int) -> int | None:
    """The step from which on their calls under one number lie now so many steps apart, and now so many others."""
    steps, places = list[tuple[int | None, int | None]](), dict[Site | None, Counter[int]]()
    for call in sorted(case.ledger.calls_in(rank, group), key=lambda each: each.seq):
        theirs = case.ledger.call(other, group, call.seq)
        if theirs is None or not _is_alike(call, theirs):
            break
        steps.append((case.ledger.step_of(rank, call), its := case.ledger.step_of(other, theirs)))
        if its is not None:
            places.setdefault(site(theirs), Counter())[its] += 1
    known = [(mine, its) for mine, its in dict.fromkeys(steps) if mine is not None and its is not None]
    if len(known) < OCCASIONS:
        return None
    apart = [its - mine for mine, its in known]
    if 0 not in apart and len(set(apart)) > 1:
        return known[0][0]
    shifts = [mine for (mine, _), (one, two) in zip(known[1:], pairwise(apart), strict=True) if one != two]
    if len(shifts) < SHIFTS or not any(_without_rhythm(calls) for calls in places.values()):
        return None
    return known[0][0] if apart[0] else shifts[0]


def _without_rhythm(calls: Counter[int]) -> bool:
    """In these steps a rank called from one place, so often in each: time and again otherwise than in the step before.

    The first and the last step are left out: a part of their calls may lie beyond the record.
    """
    whole = list(calls)[1:-1]
    turns = [(calls[step], following - step) for step, following in pairwise(whole)]
    return sum(one != two for one, two in pairwise(turns)) >= SHIFTS


def _is_alike(one: Collective, other: Collective) -> bool:
    return site(one) is not None and site(one) == site(other) and one.sizes == other.sizes
