"""Calls that a few ranks made in the present step, and that the others went by."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.extra_calls import groups
from hangwatch.facts.gone_by import GoneBy, gone_by
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Frame
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame

from .witnesses import most_or_the_source, rank_check


def made_in_this_step(case: Case) -> Finding | None:
    """A minority, or those behind a rank check, made calls that no rank had made in any step before."""
    found = gone_by(case)
    if found is None or len(found.makers) > len(found.others):
        return None
    newness = Witness(Kind.PLACE, "no rank had made such a call in any step before that is recorded")
    witnesses = (newness, *most_or_the_source(case, found.calls[0], found.makers, found.others))
    return _alone(case, found, witnesses) if len(witnesses) > 1 else None


def _alone(case: Case, found: GoneBy, witnesses: tuple[Witness, ...]) -> Finding:
    calls = words.listed([f"{times} calls of {text}" if times > 1 else text for text, times in groups(found.calls)])
    guard = rank_check(case, found.calls[0])
    step = case.step_of(found.makers)
    after = words.place(Frame(*found.follows.lines[0], ""))
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,  # all that speaks against the others is that they are more
        f"{case.name(found.makers, capital=True)} made {calls} in {words.step(step)}, and"
        f" {case.name(found.others)} went by without; since then their calls are mispaired.",
        culprits=case.culprits(found.makers, guard.where if guard is not None else user_frame(found.calls[0].frames)),
        victims=found.others,
        step=step,
        evidence=(
            f"then {case.name(found.makers)} made the usual call at {after}, as {case.name(found.others)} did too",
        ),
        witnesses=witnesses,
        awaited=found.makers,
    )
