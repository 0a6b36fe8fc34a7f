"""A job that a person or its launcher ended, in which nothing had moved for long: who waited for whom is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import Certainty, Frame, Judgement, Phase, RankEvidence, Status
from tests.unit.job import IN_BARRIER, IN_CODE, LIB, SCRIPT, gone, judge, main_thread

ASKS = (Frame(f"{LIB}/socket.py", 706, "readinto"), Frame(SCRIPT, 77, "ask"), *IN_CODE[-1:])


def ended(number: int, stack: tuple[Frame, ...], *, still_s: float = 45.0, cpu: float = 0.0) -> RankEvidence:
    """It stood there at the last look; a signal ended it."""
    issued = 4 if stack == IN_BARRIER else 3
    found = gone(number, -15, Phase.STEP, world_size=3, issued=issued, completed=3, still_s=still_s)
    assert found.process is not None
    stacks = (replace(main_thread(stack), source="last look"),)
    return replace(found, stacks=stacks, process=replace(found.process, cpu_delta_s=cpu))


def judged(stack: tuple[Frame, ...], *, still_s: float = 45.0, cpu: float = 0.0) -> Judgement:
    others = (ended(number, IN_BARRIER, still_s=still_s) for number in (0, 1))
    return judge(*others, ended(2, stack, still_s=still_s, cpu=cpu), world_size=3)


def test_the_rank_that_the_others_waited_for_is_told() -> None:
    judgement = judged(ASKS)
    assert (judgement.verdict.cause, judgement.status) == ("user-code-blocked", Status.FAILED)
    assert [who.rank for who in judgement.verdict.culprits] == [2]
    assert "ranks 0-1 wait for it" in judgement.verdict.summary
    assert judgement.verdict.summary.endswith("Then all ranks were ended by SIGTERM.")


def test_of_a_rank_that_computed_nothing_more_is_known() -> None:
    verdict = judged(IN_CODE, cpu=0.9).verdict
    assert (verdict.cause, verdict.certainty, verdict.culprits) == ("undetermined", Certainty.UNDETERMINED, ())
    assert "Rank 2" in verdict.summary
    assert "ranks 0-1 wait for it" in verdict.summary


@pytest.mark.parametrize("still_s", [5.0, 29.0])
def test_a_job_that_had_moved_a_moment_ago_was_just_ended(still_s: float) -> None:
    summary = judged(ASKS, still_s=still_s).verdict.summary
    assert summary.startswith("All ranks were ended by SIGTERM")
