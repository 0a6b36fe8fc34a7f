"""`gradient-sync-mismatch`: gradients are synchronised at different intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
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


@pytest.mark.parametrize("batches", [2, 3])
def test_calls_between_epochs_are_no_rhythm_of_the_gradients(batches: int) -> None:
    """By counts alone the last step of each epoch has a call more than the others."""
    case = Case(World([epochs(batches)] * 2).run().snapshot())
    assert cadence(case, 0, "0", recorded=False) is None


def test_counts_of_a_rank_that_has_ended_are_not_compared_with_recorded_calls_of_others() -> None:
    """It has left no record of backward's calls; what it called from Python every other step is another rhythm."""

    def logging(batches: int) -> Program:
        log: Program = [Call("all_gather", line=60)]
        steps: list[Program] = [[Draw(0, batch), GRADIENTS[0], *(log if batch % 2 else [])] for batch in range(batches)]
        return [*[action for step in steps for action in step], LoopEnd()]

    snapshot = World([logging(15), logging(16), logging(16)]).run().snapshot()
    ended = replace(snapshot.ranks[0], collectives=Collectives(snapshot.ranks[0].collectives.heads))
    assert gradient_sync_mismatch(Case(replace(snapshot, ranks=(ended, *snapshot.ranks[1:])))) is None
