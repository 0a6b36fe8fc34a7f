"""`exit-atexit-handler`: an exit handler does not return."""

from __future__ import annotations

from typing import Any

import pytest

from hangwatch.model import Frame, Phase, RankEvidence, ThreadStack
from tests.unit.job import IN_HANDLER, LIB, SCRIPT, judge, leaving, main_thread, told
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
    assert "it sleeps, for another 15 min" in judgement.verdict.evidence[0]


def test_a_handler_that_takes_naps_may_come_to_its_end() -> None:
    naps = {"system_call": "clock_nanosleep", "sleeps_s": 0.3}
    assert told(judge(DONE, in_handler(**naps)))[2] == "waiting"
    assert told(judge(DONE, in_handler(**naps, still_s=25.0)))[2] == "waiting"
    assert told(judge(DONE, in_handler(**naps, still_s=61.0)))[2] == "lingering"


def test_a_handler_written_in_c() -> None:
    judgement = judge(DONE, leaving(1, (), Phase.ATEXIT, threads=(main_thread(()),)))
    assert told(judgement)[:2] == ("exit-atexit-handler", "proven")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_handler_that_is_the_join_of_a_thread_is_told_by_that_thread(threads: int) -> None:
    """`atexit.register(writer.join)`: no line of the user's stands on the main stack."""
    join = (Frame(f"{LIB}/threading.py", 1139, "_wait_for_tstate_lock"), Frame(f"{LIB}/threading.py", 1119, "join"))
    path = (Frame(f"{LIB}/threading.py", 327, "wait"), Frame(f"{LIB}/queue.py", 171, "get"), Frame(SCRIPT, 33, "pump"))
    pumps = tuple(ThreadStack(9 + number, f"writer-{number}", path) for number in range(threads))
    judgement = judge(DONE, leaving(1, join, Phase.ATEXIT, threads=(main_thread(join), *pumps), still_s=12.0))
    assert told(judgement)[0] == "exit-atexit-handler"
    named = "the exit handler that waits for thread 'writer-0' (train.py:33) does not return"
    assert (named in judgement.verdict.summary) is (threads == 1)
