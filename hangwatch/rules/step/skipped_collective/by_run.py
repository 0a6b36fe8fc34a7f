"""A run of equal calls that some ranks ended before the others."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.facts.runs import name_apart, numbers_apart, place_apart, went_on
from hangwatch.facts.witness import Kind, Witness
from hangwatch.rules.finding import Finding


def made_a_shorter_run(case: Case) -> Finding | None:
    """The fewer ranks made fewer calls of a run than the others, and went on to a later call; of two halves, none."""
    found = went_on(case)
    if found is None or len(found.ranks) >= len(found.others):
        return None
    witnesses = (Witness(Kind.MAJORITY, f"most ranks made that call again: {case.name(found.others)}"),)
    return Finding(
        "skipped-collective",
        case.weigh(witnesses),
        f"{case.name(found.ranks, capital=True)} made fewer calls of {name_apart(found.repeated, found.reached)} than"
        f" {case.name(found.others)}, and went on to {name_apart(found.reached, found.repeated)}; since then"
        f" {'its' if len(found.ranks) == 1 else 'their'} calls are mispaired.",
        fix="call it equally often on every rank: give all the same number of batches, or vote on when to stop",
        culprits=case.culprits(found.ranks, place_apart(found.reached, found.repeated)),
        step=case.step_of(found.ranks),
        evidence=(numbers_apart(case, found),),
        witnesses=witnesses,
        awaited=found.ranks,
    )
