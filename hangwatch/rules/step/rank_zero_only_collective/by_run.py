"""A run of equal calls that some ranks continued when the others had gone on."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.facts.runs import WentOn, name_apart, numbers_apart, went_on
from hangwatch.facts.witness import Kind, Witness
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def made_a_longer_run(case: Case) -> Finding | None:
    """The fewer ranks made more calls of a run than the others, which had gone on to a later call."""
    found = went_on(case)
    if found is None or len(found.others) >= len(found.ranks):
        return None
    return _longer(case, found)


def _longer(case: Case, found: WentOn) -> Finding:
    witnesses = (Witness(Kind.MAJORITY, f"most ranks had gone on to the later call: {case.name(found.ranks)}"),)
    its = "its" if len(found.others) == 1 else "their"
    return Finding(
        "rank-zero-only-collective",
        case.weigh(witnesses),
        f"{case.name(found.others, capital=True)} made more calls of {name_apart(found.repeated, found.reached)} than"
        f" {case.name(found.ranks)}, which went on to {name_apart(found.reached, found.repeated)}; since then {its}"
        " calls are mispaired.",
        fix="call it equally often on every rank: loop over what is the same on all of them, or agree on a number",
        culprits=case.culprits(found.others, user_frame(found.repeated.frames)),
        victims=case.victims(found.others),
        step=case.step_of(found.others),
        evidence=(numbers_apart(case, found),),
        witnesses=witnesses,
        awaited=found.others,
    )
