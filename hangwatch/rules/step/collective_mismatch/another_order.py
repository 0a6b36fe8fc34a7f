"""Ranks that issued the same asynchronous calls in another order."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import call_at
from hangwatch.facts.calls.mismatches import shape
from hangwatch.facts.case import Case
from hangwatch.facts.differences.other_order import OtherOrder, had_that_order, other_order
from hangwatch.model import Certainty, Collective
from hangwatch.ranks.sides import odd_of
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def issued_in_another_order(case: Case) -> Finding | None:
    """All made the same calls, some in another order: a backend pairs them by their numbers."""
    found = other_order(case) if case.in_trouble else None
    if found is None:
        return None
    odd, habit = _odd(case, found)
    names = [_called(calls) for calls in found.calls]
    texts = [f"{case.name(ranks)} issued {name}" for ranks, name in zip(found.sides, names, strict=True)]
    first = found.calls[found.sides.index(odd)][0] if odd in found.sides else None
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"The ranks issued the same calls in another order, from number {found.found.seq} of group"
        f" {found.found.group.name} on: {'; '.join(texts)}.",
        fix="issue asynchronous calls in one order on every rank: no condition and no order of events of a rank's own"
        " may decide which comes first; or give each kind of call a group of its own",
        culprits=case.culprits(odd, user_frame(first.frames) if first is not None else None),
        victims=case.victims(odd),
        step=case.ranks[odd[0]].step,
        evidence=(*habit, "each of these calls was made on both sides: none was left out"),
        status=case.failed_status,
    )


def _odd(case: Case, found: OtherOrder) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The fewer ranks; of two halves the one whose order is a new one, where that of the other is not."""
    before = [had_that_order(case, ranks[0], calls) for ranks, calls in zip(found.sides, found.calls, strict=True)]
    new = [ranks for ranks, times in zip(found.sides, before, strict=True) if not times]
    told = tuple(
        f"{case.name(ranks[:1])} issued them in this order in {words.plural(times, 'step')} before"
        for ranks, times in zip(found.sides, before, strict=True)
        if times
    )
    halves = len(found.sides[0]) == len(found.sides[1])
    return (new[0] if halves and len(new) == 1 else odd_of(*found.sides)), told


def _called(calls: tuple[Collective, ...]) -> str:
    """`all_reduce (train.py:14) before all_gather (train.py:18)`."""
    shown = [call_at(call) for call in calls[:2]]
    if shown[0] == shown[1]:
        shown = [f"{shape(call)}{words.at(user_frame(call.frames))}" for call in calls[:2]]
    return " before ".join(shown)
