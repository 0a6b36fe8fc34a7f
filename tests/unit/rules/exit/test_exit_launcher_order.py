"""`exit-launcher-order`: the launcher waits for the wrong child."""

from __future__ import annotations

from typing import Any

from hangwatch.model import ExceptionFacts, Frame, Phase, RankEvidence
from tests.unit.job import IN_CODE, IN_WAIT, NOW, SCRIPT, blamed, gone, judge, launcher, rank, told
from tests.unit.rules.exit.exits import WAITS


def failed(number: int, **parts: Any) -> RankEvidence:
    return gone(number, 3, state="Z", facts={"parent": 50}, **parts)


def test_a_launcher_that_waits_for_the_wrong_one() -> None:
    alive = rank(0, IN_CODE, phase=Phase.DESTROYED, facts={"system_call": "read"})
    judgement = judge(alive, failed(1), launchers=(launcher(IN_WAIT, system_call="wait4", waits_for=100),))
    assert told(judgement) == ("exit-launcher-order", "proven", "lingering")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "while rank 1 has ended already (exit code 3)" in judgement.verdict.summary


def test_an_end_that_no_process_can_have_noticed_yet() -> None:
    alive = rank(0, IN_CODE, phase=Phase.DESTROYED, facts={"system_call": "read"}, patience_s=120.0)
    just_now = failed(1, evidence={"ended_at": NOW - 1})
    assert told(judge(alive, just_now, launchers=(launcher(waits_for=100),)))[2] == "waiting"


def test_ranks_that_wait_for_the_dead_one_in_a_collective_explain_more() -> None:
    judgement = judge(WAITS, failed(1, phase=Phase.STEP, issued=10), launchers=(launcher(waits_for=100),))
    assert judgement.verdict.cause == "rank-died"


def test_the_error_that_ended_the_unnoticed_rank_is_told() -> None:
    alive = rank(0, IN_CODE, phase=Phase.DESTROYED, facts={"system_call": "read"})
    dead = failed(1, exception=ExceptionFacts("DataError", "missing values", (Frame(SCRIPT, 30, "train_fold"),)))
    verdict = judge(alive, dead, launchers=(launcher(IN_WAIT, system_call="wait4", waits_for=100),)).verdict
    assert "(exit code 3, of DataError: missing values (train.py:30)), unnoticed" in verdict.summary
    assert "rank 1 (pid 101) is a zombie: exit code 3, of DataError: missing values (train.py:30)" in verdict.evidence
