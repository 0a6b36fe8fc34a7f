"""Ranks whose training is over: which of them are on their way out."""

from __future__ import annotations

import pytest

from hangwatch.model import Frame, LoopFacts, Phase, ThreadStack
from tests.unit.job import IN_CODE, IN_SHUTDOWN, LIB, SCRIPT, frames, gone, judge, rank, told
from tests.unit.rules.exit.exits import DONE


def test_user_code_after_the_group_is_destroyed_is_no_exit() -> None:
    evaluating = rank(1, IN_CODE, phase=Phase.DESTROYED, patience_s=120.0)
    assert told(judge(DONE, evaluating))[2] == "waiting"


@pytest.mark.parametrize("code", [0, None, -6])
def test_a_clean_end_is_nothing_to_speak_of(code: int | None) -> None:
    """-6: gloo's threads abort one process in ten at its exit."""
    judgement = judge(gone(0, code), gone(1, 0))
    assert told(judgement) == ("undetermined", "undetermined", "waiting")


def test_a_failure_after_the_training_is_one() -> None:
    assert told(judge(gone(0, 1), gone(1, 0)))[2] == "failed"
    assert told(judge(gone(0, 120), gone(1, 0)))[2] == "failed"


def test_an_exit_code_that_a_program_chose_after_its_training_is_no_failure() -> None:
    assert told(judge(gone(0, 3), gone(1, 3)))[2] == "waiting"
    assert told(judge(gone(0, 3), gone(1, 0)))[2] == "waiting"
    assert told(judge(gone(0, 3, Phase.STEP), gone(1, 0)))[2] == "failed"


@pytest.mark.parametrize(
    ("written", "still_s", "status"),
    [(2_000, 40.0, "lingering"), (20_000, 40.0, "waiting"), (20_000, 181.0, "lingering"), (100_000, 181.0, "waiting")],
)
def test_a_rank_whose_thread_writes_bit_by_bit_is_given_more_patience(
    written: int, still_s: float, status: str
) -> None:
    """An upload in parts sleeps most of the time, and ends."""
    upload = ThreadStack(9, "upload", frames((f"{LIB}/threading.py", 982, "run"), below=(Frame(SCRIPT, 8, "upload"),)))
    facts = {"written_delta_bytes": written}
    leaving = rank(
        1, IN_SHUTDOWN, phase=Phase.MAIN_DONE, threads=(upload,), facts=facts, still_s=still_s, patience_s=30.0
    )
    assert told(judge(DONE, leaving)) == ("exit-non-daemon-thread", "proven", status)


ENDS, ENDLESS = LoopFacts(Frame(SCRIPT, 7, "run"), counted=True), LoopFacts(Frame(SCRIPT, 7, "run"), endless=True)
INNERMOST = {
    "naps": Frame(SCRIPT, 8, "run"),
    "reads": Frame(f"{LIB}/socket.py", 706, "readinto"),
    "waits": Frame(f"{LIB}/threading.py", 320, "wait"),
}


@pytest.mark.parametrize(
    ("what", "loop", "still_s", "status"),
    [
        ("naps", ENDS, 40.0, "waiting"),
        ("naps", ENDS, 181.0, "lingering"),
        ("naps", ENDLESS, 40.0, "lingering"),
        ("naps", None, 40.0, "lingering"),
        ("reads", ENDS, 40.0, "waiting"),
        ("waits", ENDS, 40.0, "lingering"),
    ],
)
def test_a_thread_in_a_loop_that_ends_may_be_at_work(
    what: str, loop: LoopFacts | None, still_s: float, status: str
) -> None:
    """It exports part after part, with naps between, or waits for a server's answer to each; not for a queue."""
    path = (INNERMOST[what], Frame(SCRIPT, 8, "run"), Frame(f"{LIB}/threading.py", 982, "run"))
    export = ThreadStack(9, "export", path, active=False, loop=loop)
    leaving = rank(1, IN_SHUTDOWN, phase=Phase.MAIN_DONE, threads=(export,), still_s=still_s, patience_s=30.0)
    assert told(judge(DONE, leaving))[2] == status
