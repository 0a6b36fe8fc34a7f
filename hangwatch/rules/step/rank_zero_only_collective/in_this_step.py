"""Calls that a few ranks made in the present step, and that the others went by."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.extra_calls import groups
from hangwatch.facts.gone_by import GoneBy, gone_by
from hangwatch.facts.skip_paths import ways_to
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Frame
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def made_in_this_step(case: Case) -> Finding | None:
    """A minority, or those behind a rank check, made calls that no rank had made in any step before."""
    found = gone_by(case)
    if found is None or len(found.makers) > len(found.others):
        return None
    witnesses = _witnesses(case, found)
    return _alone(case, found, witnesses) if len(witnesses) > 1 else None


def _witnesses(case: Case, found: GoneBy) -> tuple[Witness, ...]:
    heard = [Witness(Kind.PLACE, "no rank had made such a call in any step before that is recorded")]
    if len(found.makers) < len(found.others):
        heard.append(Witness(Kind.MAJORITY, f"most ranks made no such call: {case.name(found.others)}"))
    guards = [way for way in ways_to(case, found.calls[0]) if way.asks == "rank"]
    if guards:
        says = f"the source asks for the rank at {words.place(guards[0].where)} (`{guards[0].text}`)"
        heard.append(Witness(Kind.SOURCE, says))
    return tuple(heard)


def _alone(case: Case, found: GoneBy, witnesses: tuple[Witness, ...]) -> Finding:
    calls = words.listed([f"{times} calls of {text}" if times > 1 else text for text, times in groups(found.calls)])
    guard = next((way.where for way in ways_to(case, found.calls[0]) if way.asks == "rank"), None)
    step = case.step_of(found.makers)
    after = words.place(Frame(*found.follows.lines[0], ""))
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,  # all that speaks against the others is that they are more
        f"{case.name(found.makers, capital=True)} made {calls} in {words.step(step)}, and"
        f" {case.name(found.others)} went by without; since then their calls are mispaired.",
        culprits=case.culprits(found.makers, guard or user_frame(found.calls[0].frames)),
        victims=found.others,
        step=step,
        evidence=(
            f"then {case.name(found.makers)} made the usual call at {after}, as {case.name(found.others)} did too",
        ),
        witnesses=witnesses,
        awaited=found.makers,
    )
