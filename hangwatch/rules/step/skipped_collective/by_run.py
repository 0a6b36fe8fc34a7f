"""A run of equal calls that some ranks ended before the others."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.call_site import path
from hangwatch.facts.case import Case
from hangwatch.facts.runs import WentOn, went_on
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Collective, Frame
from hangwatch.rules.finding import Finding


def made_a_shorter_run(case: Case) -> Finding | None:
    """The fewer ranks made fewer calls of a run than the others, and went on to a later call; of two halves, none."""
    found = went_on(case)
    if found is None or len(found.ranks) >= len(found.others):
        return None
    witnesses = (Witness(Kind.MAJORITY, f"most ranks made that call again: {case.name(found.others)}"),)
    views = [case.ranks[rank] for rank in found.ranks if rank in case.ranks]
    return Finding(
        "skipped-collective",
        case.weigh(witnesses),
        f"{case.name(found.ranks, capital=True)} made fewer calls of {_name(found.repeated, found.reached)} than"
        f" {case.name(found.others)}, and went on to {_name(found.reached, found.repeated)}; since then"
        f" {'its' if len(found.ranks) == 1 else 'their'} calls are mispaired.",
        fix="call it equally often on every rank: give all the same number of batches, or vote on when to stop",
        culprits=tuple(view.culprit(_apart(found.reached, found.repeated)) for view in views),
        step=next((view.step for view in views), case.furthest_step(case.ranks)),
        evidence=(_numbers(case, found),),
        witnesses=witnesses,
        awaited=found.ranks,
    )


def _numbers(case: Case, found: WentOn) -> str:
    before, after = (words.place(_apart(*pair)) for pair in _both_ways(found))
    return (
        f"up to number {found.seq - 1} all made the same calls, the last {found.made} of them at {before};"
        f" from {found.seq} on those of {case.name(found.ranks)} are at {after}"
    )


def _both_ways(found: WentOn) -> tuple[tuple[Collective, Collective], tuple[Collective, Collective]]:
    return (found.repeated, found.reached), (found.reached, found.repeated)


def _name(call: Collective, other: Collective) -> str:
    return f"{call.op}{words.at(_apart(call, other))}"


def _apart(call: Collective, other: Collective) -> Frame | None:
    """The line of the way to `call` by which it differs from the way to `other`, the outermost one."""
    mine, theirs = path(call.frames), path(other.frames)
    pairs = zip(reversed(mine), reversed(theirs), strict=False)
    line = next((one for one, two in pairs if one != two), mine[0] if mine else None)
    return next((frame for frame in call.frames if (frame.file, frame.line) == line), None)
