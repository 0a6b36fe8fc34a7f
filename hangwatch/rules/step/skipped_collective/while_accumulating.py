"""Ranks that left a whole backward out in a step in which no gradients are reduced, so that no call shows it."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import path
from hangwatch.facts.calls.call_sites import HABIT
from hangwatch.facts.calls.skip_paths import evidence_of, past_lines, skip_path, the_only
from hangwatch.facts.case import Case
from hangwatch.facts.differences.backwards import parted_from_together
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass
from hangwatch.rules.finding import Finding


def left_a_backward_out(case: Case) -> Finding | None:
    """It counts the backwards that it accumulates: with one less it synchronises in other steps than the others.

    Of two halves the one without a backward left its own habit, if all ranks made one in each step before.
    """
    found = parted_from_together(case)
    if found is None:
        return None
    odd, others = found.without, found.accumulating
    fewer, habit = len(odd) < len(others), found.always >= HABIT
    if not odd or not (fewer or (len(odd) == len(others) and habit)) or len(odd) + len(others) < len(case.ranks):
        return None
    ways = _ways(case, others)
    witnesses = [
        Witness(Kind.FACT, f"by the record of its own, {case.name(odd)} began to compute no gradients in that step")
    ]
    if fewer:
        witnesses.append(Witness(Kind.MAJORITY, f"most ranks accumulated gradients in it: {case.name(others)}"))
    if habit:
        before = f"all ranks made a backward in each of the {found.always} recorded steps before it"
        witnesses.append(Witness(Kind.HABIT, before))
    return Finding(
        "skipped-collective",
        case.weigh(witnesses),
        f"{case.name(odd, capital=True)} made no backward in {words.step(found.step)}{skip_path(ways)}, where"
        f" {case.name(others)} accumulated gradients; since then {words.verb(len(odd), 'its', 'their')} gradients are"
        " due in other steps than those of the others.",
        culprits=case.culprits(odd, the_only(ways)),
        victims=case.victims(odd),
        step=found.step,
        evidence=evidence_of(ways),
        witnesses=tuple(witnesses),
        status=case.failed_status,
    )


def _ways(case: Case, others: tuple[int, ...]) -> tuple[Bypass, ...]:
    """The ways past the backward of the others, where all of theirs come from one place."""
    paths = {path(view.reading.backward) for view in case.views(others) if view.reading is not None}
    return past_lines(case, paths.pop()) if len(paths) == 1 else ()
