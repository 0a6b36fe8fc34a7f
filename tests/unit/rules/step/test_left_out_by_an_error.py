"""Of two ranks one left out a call past which only an error leads, and went on to a call of the same kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Frame, Judgement
from tests.unit.rules.step.worlds import STEP, Program, world
from tests.unit.simulator import SCRIPT, Call, blamed_ranks

HANDLER = Frame(SCRIPT, 29, "main")
WRITTEN, AFTER, NEXT = Call("barrier", line=30), Call("barrier", line=40), Call("all_gather", line=41)


def judged(way: Bypass, culprit: int = 1, further: tuple[Bypass, ...] = ()) -> Judgement:
    """Both ranks come to the calls after it; one of them without the barrier at line 30."""
    whole: Program = [*STEP * 3, WRITTEN, AFTER, NEXT]
    short: Program = [*STEP * 3, AFTER, NEXT]
    snapshot = world(*(short if rank == culprit else whole for rank in range(2)))
    sites = (CallSite((Frame(SCRIPT, 30, "main"),), (way, *further)),)
    return diagnose(replace(snapshot, call_sites=sites))


@pytest.mark.parametrize("culprit", [0, 1])
def test_the_rank_without_the_call_is_named_at_the_clause(culprit: int) -> None:
    judgement = judged(Bypass(HANDLER, "except OSError: return"), culprit)
    assert judgement.verdict.cause == "skipped-collective", judgement.verdict.summary
    assert blamed_ranks(judgement) == [culprit]
    assert judgement.verdict.culprits[0].where == HANDLER
    assert f"Rank {culprit} left out barrier (train.py:30)" in judgement.verdict.summary
    assert "by the source, only an error leads past that call, at train.py:29 (`except OSError: return`)" in (
        judgement.verdict.evidence
    )


def test_a_package_that_asks_for_the_rank_may_have_left_it_out_as_well() -> None:
    package = Bypass(Frame("/venv/lib/python3.12/site-packages/fit/hooks.py", 8, "wrapped"), "", False, "package")
    assert blamed_ranks(judged(Bypass(HANDLER, "except OSError: return"), further=(package,))) == []


@pytest.mark.parametrize("asks", ["value", "rank"])
def test_a_condition_says_nothing_of_which_side_is_right(asks: str) -> None:
    judgement = judged(Bypass(HANDLER, "if loss > 3", asks=asks))
    assert blamed_ranks(judgement) != [1]


@pytest.mark.parametrize("before", [[WRITTEN], [*STEP * 2, WRITTEN], [*STEP, WRITTEN] * 3])
@pytest.mark.parametrize("other", [0, 1])
def test_of_two_ranks_that_made_it_before_nothing_tells_which_is_right(other: int, before: Program) -> None:
    """One rank left it out, or the other one made it once more: it never came on the calls that it now comes on."""
    whole, short = ([*before, *STEP * 3, *calls, AFTER, NEXT] for calls in ([WRITTEN], []))
    judgement = diagnose(world(*(short if rank == other else whole for rank in range(2))))
    assert judgement.verdict.cause == "undetermined"
    assert f"Rank {1 - other} called barrier (train.py:30) before barrier (train.py:40)" in judgement.verdict.summary


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_the_one_without_a_call_that_always_came_there_is_named(culprit: int) -> None:
    turn = [*STEP * 2, WRITTEN, AFTER, NEXT]
    short: Program = [*turn * 2, *STEP * 2, AFTER, NEXT, *turn]
    judgement = diagnose(world(*(short if rank == culprit else turn * 4 for rank in range(2))))
    assert judgement.verdict.cause == "skipped-collective", judgement.verdict.summary
    assert blamed_ranks(judgement) == [culprit]
