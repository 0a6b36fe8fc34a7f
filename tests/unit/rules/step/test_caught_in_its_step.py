"""`exception-on-one-rank`: an error that the program caught, in the step in which its rank began to differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import ExceptionFacts, Frame, Judgement, RankEvidence
from tests.unit.job import blamed
from tests.unit.rules.step.worlds import STEP, changed, world
from tests.unit.simulator import SCRIPT, Draw

SKIPPED = 3  # the step of which rank 1 leaves out all calls


def job(*caught: tuple[int, ExceptionFacts]) -> Judgement:
    """Three ranks, of which rank 1 skips a step, and errors that ranks caught."""
    snapshot = world(STEP * 6, [*STEP * SKIPPED, Draw(), *STEP * 2], STEP * 6)
    for rank, error in caught:
        snapshot = changed(snapshot, rank, lambda entry, error=error: with_caught(entry, error))  # type: ignore[misc]
    return diagnose(snapshot)


def with_caught(entry: RankEvidence, error: ExceptionFacts) -> RankEvidence:
    assert entry.reading is not None
    return replace(entry, reading=replace(entry.reading, caught=(*entry.reading.caught, error)))


def error(step: int, message: str = "activation 7e5", thread: str = "MainThread") -> ExceptionFacts:
    frames = (Frame(SCRIPT, 33, "watch"), Frame(SCRIPT, 12, "main"))
    return ExceptionFacts("FloatingPointError", message, frames, thread, fatal=False, step=step)


def test_the_error_of_that_step_is_the_cause_with_its_line() -> None:
    judgement = job((1, error(SKIPPED)))
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("exception-on-one-rank", "likely")
    assert [number for number, _, _ in blamed(judgement)] == [1]
    (culprit,) = judgement.verdict.culprits
    assert culprit.where == Frame(SCRIPT, 33, "watch")
    assert "it issued 0 collectives in that step, and the others 2" in judgement.verdict.summary
    assert "ranks 0 and 2 recorded no error in that step" in judgement.verdict.evidence


@pytest.mark.parametrize(
    "caught",
    [
        [],
        [(1, error(SKIPPED - 1))],
        [(0, error(SKIPPED))],
        [(1, error(SKIPPED)), (0, error(SKIPPED))],
        [(1, error(SKIPPED, "Connection closed by peer"))],
        [(1, error(SKIPPED, thread="prefetch"))],
    ],
    ids=["none", "of another step", "of another rank", "of others too", "a consequence", "of another thread"],
)
def test_another_error_is_not(caught: list[tuple[int, ExceptionFacts]]) -> None:
    assert job(*caught).verdict.cause == "skipped-collective"
