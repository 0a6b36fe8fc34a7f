"""A run of equal calls that some ranks ended before the others."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.facts.case import Case
from hangwatch.facts.runs import WentOn, name_apart, numbers_apart, place_apart, usual_length, went_on
from hangwatch.facts.witness import Kind, Witness
from hangwatch.rules.finding import Finding


def made_a_shorter_run(case: Case) -> Finding | None:
    """The fewer ranks made fewer calls of a run than the others, and went on to a later call.

    Of two halves only the length of the earlier runs tells which is right.
    """
    found = went_on(case)
    usual = usual_length(case, found) if found is not None else None
    cut_short = found is not None and usual is not None and found.made < usual
    if found is None or len(found.ranks) > len(found.others) - (not cut_short):
        return None
    witnesses = tuple(_witnesses(case, found, usual, cut_short=cut_short))
    return Finding(
        "skipped-collective",
        case.weigh(witnesses),
        f"{case.name(found.ranks, capital=True)} made fewer calls of {name_apart(found.repeated, found.reached)} than"
        f" {case.name(found.others)}, and went on to {name_apart(found.reached, found.repeated)}; since then"
        f" {'its' if len(found.ranks) == 1 else 'their'} calls are mispaired.",
        fix="call it equally often on every rank: as many batches, layers or turns on each, or vote on when to stop",
        culprits=case.culprits(found.ranks, place_apart(found.reached, found.repeated)),
        step=case.step_of(found.ranks),
        evidence=(numbers_apart(case, found),),
        witnesses=witnesses,
        awaited=found.ranks,
    )


def _witnesses(case: Case, found: WentOn, usual: int | None, *, cut_short: bool) -> Iterator[Witness]:
    if len(found.others) > len(found.ranks):
        yield Witness(Kind.MAJORITY, f"most ranks made that call again: {case.name(found.others)}")
    if usual is not None:
        yield Witness(Kind.HABIT, f"each run of that call before had {usual}, on every rank", agrees=cut_short)
