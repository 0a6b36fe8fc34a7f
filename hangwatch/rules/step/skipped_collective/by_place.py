"""A call that came earlier in its step than ever: its rank has left out calls before it."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import call_at
from hangwatch.facts.calls.places_in_step import Early, early_calls
from hangwatch.facts.calls.skip_paths import evidence_of, skip_path, the_only, ways_to
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import had_fewer
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def ended_earlier_than_ever(case: Case) -> Finding | None:
    """The same, where ranks ended of it."""
    return earlier_than_ever(case) if case.any_rank_failed else None


def earlier_than_ever(case: Case) -> Finding | None:
    """Fewer than half of the ranks, or one of two, made a call too early, and the others wait or have ended of it.

    Where another rank made the call that they left out, as all did in each step before, they may be the most.
    """
    found = early_calls(case)
    few = 2 * len(found) <= len(case.ranks) or all(each.own for each in found)
    if not found or not few or not case.in_trouble:
        return None
    return _left_out(case, found) if not all(had_fewer(case, each.rank) for each in found) else None


def _left_out(case: Case, found: tuple[Early, ...]) -> Finding:
    first, ranks = found[0], tuple(each.rank for each in found)
    if first.own:
        return _left_out_before_gradients(case, first, ranks)
    step = first.step.name
    where = user_frame(first.call.frames)
    call = call_at(first.call)
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
        status=case.failed_status,
    )


def _left_out_before_gradients(case: Case, first: Early, ranks: tuple[int, ...]) -> Finding:
    """DDP's own collective came earlier than ever: what was missing before it is known by its place."""
    step = first.step.name
    call = call_at(first.call)
    ways = ways_to(case, first.call)
    place = f"number {first.place} of that step in group {first.call.group}"
    its = words.verb(len(ranks), "its", "their")
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} left out {call} in {words.step(step)}{skip_path(ways)}; since then {its}"
        " calls are mispaired.",
        culprits=case.culprits(ranks, the_only(ways)),
        step=step,
        evidence=(
            f"{place} was {call} in each of the {first.steps} steps before",
            f"on rank {first.rank} it is now one that torch makes by itself",
            *evidence_of(ways),
        ),
        status=case.failed_status,
    )
