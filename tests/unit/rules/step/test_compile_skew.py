"""`compile-skew`: one rank still compiles."""

from __future__ import annotations

from hangwatch.judge import diagnose
from hangwatch.model import Status
from tests.unit.rules.step.worlds import stuck


def test_a_rank_that_compiles_is_waited_for() -> None:
    judgement = diagnose(stuck("compile", cpu_delta_s=0.9))
    assert judgement.verdict.cause == "compile-skew"
    assert judgement.status is Status.WAITING
