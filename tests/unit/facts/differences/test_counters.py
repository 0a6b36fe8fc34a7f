"""Calls of every so many turns, by counters that differ by rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.counters import counts_apart
from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Frame, LoopFacts, RankEvidence, Snapshot
from tests.unit.rules.step.decisions import GRADIENTS, Program, blamed, changed, way
from tests.unit.simulator import SCRIPT, Call, Draw, World

LOG = Call("broadcast", line=30, root=0)
EVERY_FIVE = Bypass(Frame(SCRIPT, 29, "main"), "if n % 5 == 0", asks="alike", counts=True)
CHECK = way("check", line=11)


def job(*programs: Program, guard: Bypass = EVERY_FIVE, ways: tuple[Bypass, ...] = (CHECK,)) -> Snapshot:
    sites = (CallSite((Frame(SCRIPT, 30, "main"),), (guard,)), CallSite((Frame(SCRIPT, 12, "main"),), ways))
    standing = changed(World(programs).run().snapshot(), _in_the_loop)
    return replace(standing, call_sites=sites)


def _in_the_loop(entry: RankEvidence) -> RankEvidence:
    stacks = tuple(replace(each, in_loop=True, loop=LoopFacts(Frame(SCRIPT, 8, "main"))) for each in entry.stacks)
    return replace(entry, stacks=stacks, earlier_stacks=stacks)


def turns(*, begin: int = 1, without: int = 0, end: int = 40) -> Program:
    """Turns `begin` to `end`, one of them without its step, and a broadcast in every fifth."""
    made: Program = []
    for n in range(begin, end + 1):
        made += [Draw(), GRADIENTS] if n != without else []
        made += [LOG] if n % 5 == 0 else []
    return made


@pytest.mark.parametrize(("ranks", "culprit"), [(3, 1), (2, 0), (4, 3)])
def test_a_rank_that_counts_a_turn_without_its_step_is_early_at_the_call(ranks: int, culprit: int) -> None:
    judgement = diagnose(job(*(turns(without=17 * (rank == culprit)) for rank in range(ranks))))
    assert (judgement.verdict.cause, blamed(judgement)) == ("skipped-collective", [(culprit, 11)])
    assert judgement.verdict.summary == (
        f"Rank {culprit} left out 1 step since step 14, probably at train.py:11 (`if loss < best`): by `if n % 5 == 0`"
        " (train.py:29) it came to broadcast (train.py:30) 4 steps after the last time, and not 5."
    )


def test_before_an_interval_shows_no_rank_is_blamed() -> None:
    """Of the first call of its kind: a turn without its step explains it, and a counter that began elsewhere."""
    judgement = diagnose(job(turns(), turns(without=3), turns()))
    assert (judgement.verdict.cause, blamed(judgement)) == ("undetermined", [])
    assert "`if n % 5 == 0` (train.py:29) comes out alike at the same count" in judgement.verdict.summary


def test_a_counter_that_began_elsewhere_differs_where_no_turn_goes_without_its_step() -> None:
    judgement = diagnose(job(turns(), turns(begin=3, end=42), turns(), ways=()))
    assert (judgement.verdict.cause, blamed(judgement)) == ("rank-local-decision", [(1, 29)])
    assert judgement.verdict.summary.startswith("`if n % 5 == 0` (train.py:29) asks for a counter that differs by rank")


@pytest.mark.parametrize(("without", "cause"), [(13, "skipped-collective"), (8, "undetermined")])
def test_a_way_past_the_whole_turn_is_none_past_the_call_alone(without: int, cause: str) -> None:
    """A `continue` ahead of both; two calls at 5 and 10 fit a count from the first step, and show the interval."""
    skip = way("check", line=11, of_turn=True)
    sites = tuple(
        CallSite((Frame(SCRIPT, line, "main"),), ways) for line, ways in ((30, (skip, EVERY_FIVE)), (12, (skip,)))
    )
    snapshot = job(turns(), turns(without=without), turns())
    judgement = diagnose(replace(snapshot, call_sites=sites))
    assert (judgement.verdict.cause, blamed(judgement)) == (cause, [(1, 11)] if cause != "undetermined" else [])


@pytest.mark.parametrize("guard", [replace(EVERY_FIVE, counts=False), replace(EVERY_FIVE, asks="value")])
def test_another_condition_than_on_a_counter_says_nothing_of_counters(guard: Bypass) -> None:
    assert counts_apart(Case(job(turns(), turns(without=17), turns(), guard=guard))) is None
