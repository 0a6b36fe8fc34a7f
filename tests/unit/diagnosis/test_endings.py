"""Jobs that came down without a hang: who ended first, and what the others failed for."""

from __future__ import annotations

import pytest

from hangwatch.records import ExceptionFacts, Frame, Phase, Progress, RankEvidence
from tests.unit.diagnosis.job import NOW, SCRIPT, TORCH, blamed, gone, judge, told

DDP = f"{TORCH}/nn/parallel/distributed.py"
CLOSED = "Connection closed by peer [127.0.0.1]:59549"
USER = (Frame(SCRIPT, 13, "evaluate"), Frame(SCRIPT, 30, "main"))


def failed(number: int, *inner: tuple[str, int, str], forwards: int = 0, message: str = CLOSED) -> RankEvidence:
    frames = (*(Frame(*frame) for frame in inner), *USER)
    error = ExceptionFacts("RuntimeError", message, frames, at=NOW - 12)
    progress = Progress(step=5, epoch=0, batch=5, forwards=forwards)
    return gone(number, 1, Phase.FAILED, exception=error, progress=progress)


def ended(number: int, phase: Phase = Phase.FINALIZING, *, step: int = 5, forwards: int = 6) -> RankEvidence:
    return gone(number, 0, phase, progress=Progress(step=step, epoch=0, batch=5, forwards=forwards))


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_rank_that_leaves_with_code_0_in_the_middle_has_died(culprit: int) -> None:
    judgement = judge(ended(culprit, Phase.STEP), failed(1 - culprit, (DDP, 1, "forward")))
    assert told(judgement) == ("rank-died", "proven", "failed")
    assert blamed(judgement) == [(culprit, 100 + culprit, "rank")]
    assert "left with exit code 0 in the middle of its training" in judgement.verdict.summary


def test_all_leave_in_the_middle_and_nobody_suffers() -> None:
    assert told(judge(ended(0, Phase.STEP), ended(1, Phase.STEP)))[2] == "waiting"


BUFFERS = ((DDP, 2425, "_sync_buffers"), (DDP, 1782, "_pre_forward"))


def test_a_rank_that_evaluated_alone_and_failed_when_the_others_were_done() -> None:
    judgement = judge(failed(0, *BUFFERS, forwards=14), ended(1), ended(2), world_size=3)
    assert told(judgement) == ("rank-zero-only-collective", "likely", "failed")
    assert blamed(judgement) == [(0, 100, "rank")]
    assert "rank 0 made 8 forwards more than any other rank, in as many steps" in judgement.verdict.evidence


@pytest.mark.parametrize("forwards", [6, 5])
def test_without_more_forwards_nobody_is_blamed(forwards: int) -> None:
    judgement = judge(failed(0, *BUFFERS, forwards=forwards), ended(1))
    assert told(judgement) == ("undetermined", "undetermined", "failed")
    assert blamed(judgement) == []


def test_a_rank_that_ended_steps_before_the_one_that_failed() -> None:
    judgement = judge(failed(0, (DDP, 1, "forward")), ended(1, step=3))
    assert told(judgement) == ("uneven-steps", "likely", "failed")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "after 4 steps" in judgement.verdict.summary
