"""Whatever the evidence is, no rule raises, and none takes for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from hangwatch.judge import ORDER, Case
from hangwatch.judge.verdict import judged
from hangwatch.model import Snapshot
from hangwatch.queues import Queues
from tests.strategies import record
from tests.unit.job import judge, snapshot, starting

thorough = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.untraced
@thorough
@given(evidence=record(Snapshot))
def test_no_rule_raises(evidence: Snapshot) -> None:
    case = Case(evidence)
    for rule in ORDER:
        found = rule(case)
        assert found is None or judged(case, found).verdict.summary


def test_a_world_size_that_no_job_has() -> None:
    judgement = judge(starting(0), world_size=10**18)
    assert judgement.verdict.cause == "rendezvous-missing-ranks"
    assert len(judgement.verdict.culprits) <= 64
    assert len(Queues(world_size=10**18).missing()) < 10**6
    assert Case(replace(snapshot(), job=replace(snapshot().job, world_size=-5))).absent == ()
