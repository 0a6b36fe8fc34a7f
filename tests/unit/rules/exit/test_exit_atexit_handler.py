"""`exit-atexit-handler`: an exit handler does not return."""

from __future__ import annotations

from typing import Any

from hangwatch.model import Phase, RankEvidence
from tests.unit.job import IN_HANDLER, judge, leaving, main_thread, told
from tests.unit.rules.exit.exits import DONE


def in_handler(**facts: Any) -> RankEvidence:
    still = facts.pop("still_s", 12.0)
    return leaving(1, IN_HANDLER, Phase.ATEXIT, facts=facts, still_s=still)


def test_a_handler_that_waits_for_ever() -> None:
    judgement = judge(DONE, in_handler(system_call="recvfrom"))
    assert told(judgement) == ("exit-atexit-handler", "proven", "lingering")
    assert "the exit handler upload (train.py:5) does not return" in judgement.verdict.summary


def test_a_handler_that_sleeps_for_long() -> None:
    judgement = judge(DONE, in_handler(system_call="clock_nanosleep", sleeps_s=900.0))
    assert told(judgement)[2] == "lingering"
    assert "it sleeps for another 15 min" in judgement.verdict.evidence[0]


def test_a_handler_that_takes_naps_may_come_to_its_end() -> None:
    naps = {"system_call": "clock_nanosleep", "sleeps_s": 0.3}
    assert told(judge(DONE, in_handler(**naps)))[2] == "waiting"
    assert told(judge(DONE, in_handler(**naps, still_s=25.0)))[2] == "waiting"
    assert told(judge(DONE, in_handler(**naps, still_s=61.0)))[2] == "lingering"


def test_a_handler_written_in_c() -> None:
    judgement = judge(DONE, leaving(1, (), Phase.ATEXIT, threads=(main_thread(()),)))
    assert told(judgement)[:2] == ("exit-atexit-handler", "proven")
