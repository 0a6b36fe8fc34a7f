"""A call that few ranks make more often than the others, or than in any of their steps: they repeat what all do.

In a loop that ends at a condition that was decided on each rank by itself; else it is a retry, most of the time.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch import words
from hangwatch.facts.again import loop_in_its_step, made_again
from hangwatch.facts.call_site import Site
from hangwatch.facts.case import Case
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import LoopFacts, StepName
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.turns import equal_turns, which_ends


def repeats_its_step(case: Case) -> Finding | None:
    """Few ranks stand in a call that they have made in this step already, as often as in every other step."""
    found = made_again(case) if case.in_trouble else ()
    if not found:
        return None
    ranks, first = tuple(each.rank for each in found), found[0]
    habits = tuple(Witness(Kind.HABIT, each.counted) for each in found[: words.SHOWN])
    call, when = f"{first.call}{words.at(case.ranks[first.rank].where)}", f"in {words.step(first.step)}"
    return once_more(case, ranks, call, when, first.step, habits)


def once_more(
    case: Case,
    ranks: tuple[int, ...],
    call: str,
    when: str,
    step: StepName,
    witnesses: tuple[Witness, ...],
    evidence: tuple[str, ...] = (),
    places: Iterable[Site] = (),
) -> Finding:
    """`ranks` repeated `call`, and `witnesses` say that it was due less often. It came from `places` where given."""
    loop = loop_around(case.ranks[ranks[0]], places)
    decided = loop if loop is not None and _decides(loop) else None
    at = f", in the loop at {words.place(decided.where)}, {which_ends(decided)}" if decided is not None else ""
    leaves = decided.leaves if decided is not None else ()
    return Finding(
        "rank-local-decision" if decided is not None else "rank-zero-only-collective",
        case.weigh(witnesses),
        f"{case.name(ranks, capital=True)} repeated what all call, {call}, {when}{at}; since then"
        f" {words.verb(len(ranks), 'its', 'their')} calls are mispaired.",
        fix=equal_turns(loop),
        culprits=case.culprits(ranks, leaves[0] if len(leaves) == 1 else None),
        victims=tuple(rank for rank in case.blocked if rank not in ranks),
        step=step,
        evidence=evidence,
        witnesses=witnesses,
        status=case.failed,
        awaited=ranks,
    )


def loop_around(view: RankView, places: Iterable[Site] = ()) -> LoopFacts | None:
    """The loop in its step in which the rank stands, if the calls from `places` are made in it."""
    loop = loop_in_its_step(view)
    lines = [line for place in places for file, line in place.lines if loop is not None and file == loop.where.file]
    made_there = loop is not None and all(loop.where.line <= line <= loop.last for line in lines[:1])
    return loop if made_there else None


def _decides(loop: LoopFacts) -> bool:
    """It ends at a condition, or with what it goes through, and is no retry after an error."""
    return loop.swallows is None and bool(loop.leaves or not loop.skips)
