"""`gradient-sync-mismatch`: gradients are synchronised at different intervals."""

from __future__ import annotations

import pytest

from tests.unit.rules.step.loops import END, GRADIENTS, Program, judged
from tests.unit.simulator import Draw, LoopEnd, blamed_ranks


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_accumulation_over_other_numbers_of_batches_is_told_by_the_rhythm(ranks: int) -> None:
    def accumulating(every: int) -> Program:
        steps = ([Draw(0, batch), *(GRADIENTS if (batch + 1) % every == 0 else ())] for batch in range(48))
        return [*(action for step in steps for action in step), LoopEnd(), *END]

    judgement = judged(accumulating(4), accumulating(2), ranks, 1)
    assert judgement.verdict.cause == "gradient-sync-mismatch"
    assert blamed_ranks(judgement) == [1]
