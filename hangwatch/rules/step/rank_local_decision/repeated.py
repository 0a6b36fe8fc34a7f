"""A call that few ranks make more often than the others, or than in any of their steps: they repeat what all do.

Each decided that by itself: a loop ended at a condition, or with items of a rank's own; or the step was tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hangwatch import words
from hangwatch.catalogue.step import TRY_AGAIN_TOGETHER
from hangwatch.facts.call_site import Path, Site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.inner_loops import loop_of_all, tried_again
from hangwatch.facts.calls.skip_paths import condition, conditional, conditions, past_lines
from hangwatch.facts.case import Case
from hangwatch.facts.differences.again import loop_in_its_step, made_again
from hangwatch.facts.differences.parting import counted
from hangwatch.facts.differences.repeats import repeated_by_few
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass, LoopFacts, StepName
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.rank_local_decision.advice import advice
from hangwatch.rules.turns import decides, equal_turns, which_ends

_ON_ALL = (
    "make that call on all ranks, with a zero where one has nothing to add; or reduce what the condition asks for first"
)


@dataclass(frozen=True)
class _Repeated:
    """`ranks` repeated `call`, `when` it was due less often, as the `witnesses` say."""

    ranks: tuple[int, ...]
    call: str
    when: str
    step: StepName
    witnesses: tuple[Witness, ...]
    loop: LoopFacts | None
    lines: Path  # by which the call was made, () where there are several ways
    evidence: tuple[str, ...] = ()


def repeats_a_call(case: Case) -> Finding | None:
    """Few ranks stand in a call that they have made in this step already."""
    found = made_again(case) if case.in_trouble else ()
    if not found:
        return None
    ranks, first = tuple(each.rank for each in found), found[0]
    view = case.ranks[first.rank]
    habits = tuple(Witness(Kind.HABIT, each.counted) for each in found[: words.SHOWN])
    call, when = f"{first.call}{words.at(view.where)}", f"in {words.step(first.step)}"
    return _finding(
        case,
        _Repeated(ranks, call, when, first.step, habits, loop_in_its_step(view), sites_of(case).lines_now(first.rank)),
    )


def repeated_a_call(case: Case) -> Finding | None:
    """The same of the first step in which the numbers of calls differ."""
    again = repeated_by_few(case)
    if again is None:
        return None
    found, call = again
    loop = _loop_around(case.ranks[found.who[0]], found.places) or loop_of_all(case, found.who[0], found.places)
    told = (counted(case, found), "the other ranks make such calls from the same lines, less often in that step")
    return _finding(case, _Repeated(found.who, call, found.when, found.step, found.witnesses, loop, found.lines, told))


def _finding(case: Case, found: _Repeated) -> Finding:
    caught = tried_again(case, found.lines) if found.lines else ()
    ways = conditional(past_lines(case, found.lines)) if found.lines and not caught else ()
    behind = ways[0] if len(ways) == 1 else None  # a turn that comes to that call, and not one turn more
    decided = found.loop if found.loop is not None and not (caught or behind) and decides(found.loop) else None
    at = f", in the loop at {words.place(decided.where)}, {which_ends(decided)}" if decided is not None else ""
    leaves = tuple(way.where for way in caught) or (decided.leaves if decided is not None else ())
    if behind is not None:
        leaves, at = (behind.where,), f", to which {condition(behind)} led it more often"
    if caught:  # in what is tried again
        at = f", probably after an error that is caught at {conditions(caught)}{at}"
    return Finding(
        "rank-local-decision",
        case.weigh(found.witnesses),
        f"{case.name(found.ranks, capital=True)} repeated what all call, {found.call}, {found.when}{at}; since then"
        f" {words.verb(len(found.ranks), 'its', 'their')} calls are mispaired.",
        fix=TRY_AGAIN_TOGETHER
        if caught
        else advice(ways) or _ON_ALL
        if behind is not None
        else equal_turns(found.loop),
        culprits=case.culprits(found.ranks, leaves[0] if len(leaves) == 1 else None),
        victims=case.victims(found.ranks),
        step=found.step,
        evidence=found.evidence,
        witnesses=found.witnesses,
        status=case.failed_status,
    )


def after_an_error(found: Finding, caught: tuple[Bypass, ...]) -> Finding:
    """The same of calls that their order shows to be repeated: a finding of them, with the clauses that lead to it."""
    where = caught[0].where if len(caught) == 1 else None
    return replace(
        found,
        cause="rank-local-decision",
        summary=f"{found.summary} It was repeated, probably after an error that is caught at {conditions(caught)}.",
        fix=TRY_AGAIN_TOGETHER,
        culprits=tuple(replace(each, where=where or each.where) for each in found.culprits),
    )


def _loop_around(view: RankView, places: tuple[Site, ...]) -> LoopFacts | None:
    """The loop in its step in which the rank stands now, if the calls from `places` are made in it, or below it."""
    loop = loop_in_its_step(view)
    within = loop is not None and all(_holds(loop, place) for place in places)
    return loop if within else None


def _holds(loop: LoopFacts, place: Site) -> bool:
    return any(file == loop.where.file and loop.where.line <= line <= loop.last for file, line in place.lines)
