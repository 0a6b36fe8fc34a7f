"""A monitored barrier that gave up: the rank that went past it, told by its board."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.model import Collective, ExceptionFacts, Frame, Phase, Progress, RankEvidence
from hangwatch.ranks.late_at_barrier import late_at_barrier
from tests.unit.job import C10D, NOW, SCRIPT, blamed, gone, judge, told

LATE = "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 25000 ms\n Original exception: Timed out waiting 25000ms"
LOST = "Rank 2 successfully reached monitoredBarrier, but received errors: Connection closed by peer [127.0.0.1]:20399"
BARRIER = (Frame(C10D, 5435, "monitored_barrier"), Frame(SCRIPT, 8, "end_of_epoch"), Frame(SCRIPT, 24, "main"))


def ended(number: int, step: int, *at: int, message: str = "", code: int = -15) -> RankEvidence:
    """It has ended in `step`, after monitored barriers in the steps `at`, with an error of this message."""
    calls = tuple(
        Collective("0", 6 + each, "monitored_barrier", frames=BARRIER, at=NOW - 99 + each, step=each) for each in at
    )
    found = gone(number, code, Phase.STEP, calls=calls, progress=Progress(step=step))
    error = ExceptionFacts("RuntimeError", message, BARRIER, at=NOW - 11) if message else None
    assert found.reading is not None
    return replace(found, reading=replace(found.reading, exception=error))


def test_the_rank_that_went_on_is_told() -> None:
    waited = ended(0, 59, 19, 39, 59, message=LATE, code=1), ended(2, 59, 19, 39, 59, message=LOST)
    judgement = judge(*waited, ended(1, 60, 19, 39))
    assert told(judgement) == ("skipped-collective", "likely", "failed")
    assert [number for number, _, _ in blamed(judgement)] == [1]
    went_on = "Rank 1 skipped monitored_barrier (train.py:8) in step 59 and went on to step 60"
    assert went_on in judgement.verdict.summary
    assert "rank 0 gave up waiting for rank 1 in monitored_barrier after 25 s" in judgement.verdict.evidence


def test_a_rank_that_is_behind_or_never_came_to_it_before_is_not_blamed() -> None:
    waited = ended(0, 59, 19, 39, 59, message=LATE, code=1), ended(2, 59, 19, 39, 59, message=LOST)
    for late in (ended(1, 59, 19, 39), ended(1, 60), ended(1, 60, 19, 39, 59)):
        judgement = judge(*waited, late)
        assert told(judgement)[0] == "undetermined"
        assert blamed(judgement) == []


def test_where_most_ranks_are_missing_rank_0_may_be_alone() -> None:
    message = LATE.replace("Rank 1 failed", "Ranks 1, 2 failed")
    judgement = judge(ended(0, 59, 19, 59, message=message, code=1), ended(1, 60, 19), ended(2, 60, 19))
    assert told(judgement)[0] == "undetermined"


def test_what_the_message_names() -> None:
    found = late_at_barrier(LATE.replace("Rank 1 failed", "Ranks 1, 3 failed"))
    assert found is not None
    assert (found.ranks, found.timeout_s) == ((1, 3), 25.0)
    assert late_at_barrier(LOST) is None
