"""A rank that repeats its step: a call made more often in it than in any step before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Frame, LoopFacts, RankEvidence
from tests.unit.rules.step.loops import Program, judged
from tests.unit.simulator import SCRIPT, Call, Draw, LoopEnd, World, blamed_ranks

GRADIENTS = (Call(via="gradients", line=12), Call(via="gradients", line=12))


def _epoch(batches: int = 5) -> Program:
    return [action for batch in range(batches) for action in (Draw(0, batch), *GRADIENTS)]


@pytest.mark.parametrize(("ranks", "culprit"), [(3, 0), (4, 3)])
def test_a_backward_that_one_rank_runs_twice_in_a_step(ranks: int, culprit: int) -> None:
    """GIVEN a retry of the last step on one rank WHEN the others have gone on to what follows the loop."""
    behind: Program = [LoopEnd(), Call("all_gather", line=80, size=3)]
    judgement = judged([*_epoch(), *behind], [*_epoch(), *GRADIENTS, *behind], ranks, culprit)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("rank-local-decision", [culprit])
    assert f"Rank {culprit} repeated what all call" in judgement.verdict.summary
    assert "vote on a retry" in judgement.verdict.fix


FIT, HOOK = Frame(SCRIPT, 90, "main"), Frame(SCRIPT, 20, "Gan.training_step")
BREAK, CAUGHT = Frame(SCRIPT, 30, "Gan.training_step"), Frame(SCRIPT, 32, "Gan.training_step")


@pytest.mark.parametrize(
    ("loop", "cause"),
    [
        (LoopFacts(HOOK, leaves=(BREAK,)), "rank-local-decision"),
        (LoopFacts(HOOK, leaves=(BREAK,), swallows=CAUGHT), "rank-local-decision"),
        (LoopFacts(HOOK, skips=(CAUGHT,)), "rank-local-decision"),
        (LoopFacts(HOOK), "rank-local-decision"),
    ],
    ids=["until a value", "a retry", "on after an error", "a number of its own"],
)
def test_a_loop_of_a_step_that_a_condition_ends(loop: LoopFacts, cause: str) -> None:
    """GIVEN a trainer's hook that trains until the loss is low WHEN one rank makes more turns than ever."""
    update = Call(line=26)
    steps: Program = [action for batch in range(5) for action in (Draw(0, batch), update, Call(line=40, size=3))]
    usual, odd = [*steps, Draw(0, 5), update], [*steps, Draw(0, 5), update, update]
    snapshot = World([[*each, Call(line=40, size=3)] for each in (usual, odd, usual)]).run().snapshot()

    def in_the_hook(entry: RankEvidence) -> RankEvidence:
        frames = (*entry.main_stack, HOOK, FIT)
        stacks = tuple(replace(each, frames=frames, loop=loop, in_loop=True) for each in entry.stacks)
        assert entry.reading is not None
        loaders = tuple(replace(each, where=FIT) for each in entry.reading.loaders)
        return replace(entry, stacks=stacks, earlier_stacks=stacks, reading=replace(entry.reading, loaders=loaders))

    judgement = diagnose(replace(snapshot, ranks=tuple(map(in_the_hook, snapshot.ranks))))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == (cause, [1])
    assert "rank 1 made all_reduce 2 times, and 1 time in each of" in " ".join(judgement.verdict.evidence)
    assert f"in the loop at train.py:{HOOK.line}" in f"{judgement.verdict.summary} {judgement.verdict.fix}"


def test_a_call_of_the_step_that_is_made_for_the_second_time_crosses_no_order_of_groups() -> None:
    """The rank of the row that repeats its step waits for the other one, which waits for all behind the loop."""
    behind: Program = [LoopEnd(), Call("barrier", line=88)]
    again: Program = [Call(line=10)]
    steps: Program = [action for batch in range(5) for action in (Draw(0, batch), Call(line=10), *GRADIENTS)]
    judgement = judged([*steps, *behind], [*steps, *again, *behind], 4, 2)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("rank-local-decision", [2])
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
