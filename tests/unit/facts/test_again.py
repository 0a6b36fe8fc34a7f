"""A rank that repeats its step: a call made more often in it than in any step before."""

from __future__ import annotations

import pytest

from tests.unit.rules.step.loops import Program, judged
from tests.unit.simulator import Call, Draw, LoopEnd, blamed_ranks

GRADIENTS = (Call(via="gradients", line=12), Call(via="gradients", line=12))


def _epoch(batches: int = 5) -> Program:
    return [action for batch in range(batches) for action in (Draw(0, batch), *GRADIENTS)]


@pytest.mark.parametrize(("ranks", "culprit"), [(3, 0), (4, 3)])
def test_a_backward_that_one_rank_runs_twice_in_a_step(ranks: int, culprit: int) -> None:
    """GIVEN a retry of the last step on one rank WHEN the others have gone on to what follows the loop."""
    behind: Program = [LoopEnd(), Call("all_gather", line=80, size=3)]
    judgement = judged([*_epoch(), *behind], [*_epoch(), *GRADIENTS, *behind], ranks, culprit)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("rank-zero-only-collective", [culprit])
    assert f"Rank {culprit} repeated what all call" in judgement.verdict.summary
    assert "vote on a retry" in judgement.verdict.fix


def test_a_call_of_the_step_that_is_made_for_the_second_time_crosses_no_order_of_groups() -> None:
    """The rank of the row that repeats its step waits for the other one, which waits for all behind the loop."""
    behind: Program = [LoopEnd(), Call("barrier", line=88)]
    again: Program = [Call(line=10)]
    steps: Program = [action for batch in range(5) for action in (Draw(0, batch), Call(line=10), *GRADIENTS)]
    judgement = judged([*steps, *behind], [*steps, *again, *behind], 4, 2)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("rank-zero-only-collective", [2])
    assert judgement.verdict.summary.startswith("Rank 2 repeated what all call, all_reduce (train.py:10)")
    assert any("2 times, and 1 time in each of 4 steps before" in each for each in judgement.verdict.evidence)


@pytest.mark.parametrize("more", [0, 1], ids=["as often as ever", "more often now and then"])
def test_a_call_that_comes_as_often_as_the_step_has_it_repeats_nothing(more: int) -> None:
    """Some steps have had more of these calls: one more is nothing new."""
    steps: Program = []
    for batch in range(5):
        steps += [Draw(0, batch), *(Call(line=10) for _ in range(1 + more * (batch % 2))), *GRADIENTS]
    judgement = judged([*steps, Draw(0, 5), Call("barrier", line=70)], [*steps, Draw(0, 5), Call(line=10)], 3, 1)
    assert "repeated what all call" not in judgement.verdict.summary
