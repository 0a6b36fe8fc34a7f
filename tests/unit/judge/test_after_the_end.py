"""A job that failed because of an earlier skipped step."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.judge import diagnose
from hangwatch.model import ProcessFacts
from tests.unit.rules.step.worlds import changed, data_parallel
from tests.unit.simulator import Draw, World, blamed_ranks


def test_an_abort_after_a_skipped_step_is_the_skips_fault() -> None:
    usual, odd = data_parallel(9), [*data_parallel(4), Draw(0, 4), *(Draw(0, batch) for batch in range(5, 9))]
    snapshot = World([usual, odd, usual]).run().snapshot()
    aborted = ProcessFacts(4000, "X", exit_code=-6)
    judgement = diagnose(changed(snapshot, 0, lambda e: replace(e, process=aborted, stacks=())))
    assert judgement.verdict.cause == "skipped-collective"
    assert blamed_ranks(judgement) == [1]
    assert judgement.verdict.step.batch == 4
