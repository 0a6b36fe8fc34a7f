"""A call that came earlier in its step than ever: its rank has left out calls before it."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.places_in_step import Early, early_calls
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def ended_earlier_than_ever(case: Case) -> Finding | None:
    """The same, where ranks ended of it."""
    return earlier_than_ever(case) if case.any_rank_failed else None


def earlier_than_ever(case: Case) -> Finding | None:
    """Fewer than half of the ranks, or one of two, made a call too early, and the others wait or have ended of it."""
    found = early_calls(case)
    if not found or 2 * len(found) > len(case.ranks) or not case.in_trouble:
        return None
    return _left_out(case, found)


def _left_out(case: Case, found: tuple[Early, ...]) -> Finding:
    first, ranks = found[0], tuple(each.rank for each in found)
    step = first.step.name
    where = user_frame(first.call.frames)
    call = f"{first.call.op}{words.at(where)}"
    missing = words.plural(first.missing, "collective")
    place = f"number {first.place} of its step in group {first.call.group}"
    habit = f"number {first.usual} in each of the {first.steps} steps before"
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} left out {missing} before {call} in {words.step(step)}; since then"
        f" {words.verb(len(ranks), 'its', 'their')} calls are mispaired.",
        culprits=case.culprits(ranks, where),
        step=step,
        evidence=(f"{call} of rank {first.rank} was {place}, and {habit}",),
        status=case.failed,
        awaited=ranks,
    )
