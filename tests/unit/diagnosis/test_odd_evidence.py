"""Whatever the evidence is, the rules of start, data, exit and devices do not raise, and do not take for ever."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from hangwatch.diagnosis import Case, data, device, exit, start
from hangwatch.diagnosis.verdict import judged
from hangwatch.records import Snapshot
from tests.strategies import record
from tests.unit.diagnosis.job import judge, snapshot, starting

RULES = (*start.GONE, *data.GONE, *exit.GONE, *start.RULES, *data.RULES, *exit.RULES, *device.RULES)
thorough = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@thorough
@given(evidence=record(Snapshot))
def test_no_rule_raises(evidence: Snapshot) -> None:
    case = Case(evidence)
    for rule in RULES:
        found = rule(case)
        assert found is None or judged(case, found).verdict.summary


def test_a_world_size_that_nobody_has() -> None:
    judgement = judge(starting(0), world_size=10**18)
    assert judgement.verdict.cause == "rendezvous-missing-ranks"
    assert len(judgement.verdict.culprits) <= 64
    assert Case(replace(snapshot(), job=replace(snapshot().job, world_size=-5))).absent == ()
