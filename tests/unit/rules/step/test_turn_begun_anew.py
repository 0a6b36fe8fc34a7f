"""A rank that leaves the rest of its turn out stands in the first calls of its next one: the same step, once more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Certainty, Frame, Judgement, LoopFacts
from tests.unit.rules.step.worlds import Program
from tests.unit.simulator import SCRIPT, Call, Draw, World, blamed_ranks

FORWARD, BACKWARD = Call("all_gather", line=10), Call("reduce_scatter", line=20)
WAY = Bypass(Frame(SCRIPT, 18, "main"), "if loss.isnan(): continue", inner=True, asks="value")
OTHER_LOOP = LoopFacts(Frame(SCRIPT, 9, "main"), outer=(Frame(SCRIPT, 4, "main"),))


def judged(*, way: Bypass = WAY, loop: LoopFacts | None = None) -> Judgement:
    """Two gathers and a reduction make a step, in which all ranks stand; rank 1 gathers for the third time in it."""
    steps: Program = [action for batch in range(5) for action in (Draw(0, batch), FORWARD, FORWARD, BACKWARD)]
    last: Program = [Draw(0, 5), FORWARD, FORWARD]
    snapshot = World([[*steps, *last, FORWARD if rank == 1 else BACKWARD] for rank in range(4)]).run().snapshot()
    ranks = tuple(
        replace(each, stacks=tuple(replace(stack, loop=loop) for stack in each.stacks)) for each in snapshot.ranks
    )
    sites = (CallSite((Frame(SCRIPT, 20, "main"),), (way,)),)
    return diagnose(replace(snapshot, ranks=ranks, call_sites=sites))


def test_what_was_due_instead_and_the_way_past_it_are_told() -> None:
    verdict = judged().verdict
    assert (verdict.cause, blamed_ranks(judged())) == ("skipped-collective", [1])
    assert verdict.culprits[0].where == WAY.where
    assert verdict.summary.startswith(
        "Rank 1 skipped reduce_scatter (train.py:20) in epoch 0, batch 5 (step 5), probably at train.py:18"
        " (`if loss.isnan(): continue`), and is in all_gather (train.py:10) of its next turn already."
    )
    assert "rank 1 made all_gather 3 times, and 2 times in each of 5 steps before" in " ".join(verdict.evidence)


@pytest.mark.parametrize(
    ("way", "loop"),
    [
        (replace(WAY, asks="rank"), None),
        (WAY, OTHER_LOOP),
    ],
    ids=["no turn goes on without it", "another turn of a loop within the step"],
)
def test_a_call_made_once_more_may_be_repeated(way: Bypass, loop: LoopFacts | None) -> None:
    verdict = judged(way=way, loop=loop).verdict
    assert "of its next turn already" not in verdict.summary
    assert verdict.certainty is not Certainty.PROVEN
