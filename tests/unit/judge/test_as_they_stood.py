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


def test_a_peer_whose_end_nobody_saw_is_not_said_to_have_died_first() -> None:
    usual, odd = data_parallel(9), [*data_parallel(4), Draw(0, 4), *(Draw(0, batch) for batch in range(5, 9))]
    found = World([usual, odd, usual]).run().snapshot()
    for number, code, at in ((0, -6, 1.0), (2, None, 2.0)):
        facts = ProcessFacts(4000 + number, "X", exit_code=code)
        ended_at = found.taken_at + at
        found = changed(found, number, lambda e, f=facts, t=ended_at: replace(e, process=f, stacks=(), ended_at=t))  # type: ignore[misc]
    judgement = diagnose(found)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [1])
