"""`rank-frozen`: a process is frozen."""

from __future__ import annotations

from hangwatch.judge import diagnose
from hangwatch.model import Status
from tests.unit.rules.step.worlds import STEP, world
from tests.unit.simulator import Stop


def test_a_stopped_rank_is_frozen_and_the_fix_is_a_command() -> None:
    judgement = diagnose(world(STEP * 5, STEP * 5, [*STEP * 3, Stop()]))
    assert judgement.verdict.cause == "rank-frozen"
    assert judgement.verdict.fix == "kill -CONT 4002"
    assert judgement.status is Status.HUNG
