"""`gradient-sync-mismatch`: gradients are synchronised at different intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.judge import diagnose
from hangwatch.model import Collectives
from hangwatch.rules.step.gradient_sync_mismatch import cadence, gradient_sync_mismatch
from tests.unit.rules.step.loops import END, GRADIENTS, Program, judged
from tests.unit.simulator import Call, Draw, LoopEnd, World, blamed_ranks


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_accumulation_over_other_numbers_of_batches_is_told_by_the_rhythm(ranks: int) -> None:
    def accumulating(every: int) -> Program:
        steps = ([Draw(0, batch), *(GRADIENTS if (batch + 1) % every == 0 else ())] for batch in range(48))
        return [*(action for step in steps for action in step), LoopEnd(), *END]

    judgement = judged(accumulating(4), accumulating(2), ranks, 1)
    assert judgement.verdict.cause == "gradient-sync-mismatch"
    assert blamed_ranks(judgement) == [1]


def epochs(batches: int) -> Program:
    """Each epoch ends with a barrier."""
    found: Program = []
    for number in range(4):
        found += [each for batch in range(batches) for each in (Draw(number, batch), GRADIENTS[0])]
        found += [LoopEnd(), Call("barrier", line=30)]
    return found


def test_calls_between_epochs_are_no_rhythm_of_the_gradients() -> None:
    """By counts alone every third step has a call more here, and every second one there: the last of each epoch."""
    case = Case(World([epochs(3), epochs(2), epochs(3)]).run().snapshot())
    for rank in case.ranks:
        assert cadence(case, rank, "0", recorded=True) == 1
        assert cadence(case, rank, "0", recorded=False) == 1
    assert diagnose(case.snapshot).verdict.cause == "uneven-steps"


def test_counts_of_a_rank_that_has_ended_are_not_compared_with_recorded_calls_of_others() -> None:
    """It has left no record of backward's calls; what it called from Python every other step is another rhythm."""

    def logging(batches: int) -> Program:
        log = [Call("all_gather", line=60)]
        steps = ([Draw(0, batch), GRADIENTS[0], *(log if batch % 2 else [])] for batch in range(batches))
        return [*(action for step in steps for action in step), LoopEnd()]

    snapshot = World([logging(15), logging(16), logging(16)]).run().snapshot()
    ended = replace(snapshot.ranks[0], collectives=Collectives(snapshot.ranks[0].collectives.heads))
    assert gradient_sync_mismatch(Case(replace(snapshot, ranks=(ended, *snapshot.ranks[1:])))) is None
