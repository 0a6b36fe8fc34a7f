"""Ranks that compute where each step has come through in next to no time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Frame, RankEvidence, Snapshot, Status, StepTimes
from tests.unit.job import SCRIPT
from tests.unit.rules.step.worlds import changed, stuck

TURN = Frame(SCRIPT, 20, "main")


def computing(still_s: float, slowest_s: float = 0.02, *, steps: int = 40, turn: Frame | None = TURN) -> Snapshot:
    def change(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        stacks = tuple(replace(each, each_turn=turn if each.main else None) for each in entry.stacks)
        reading = replace(entry.reading, times=StepTimes(steps=steps, slowest_recent_s=slowest_s))
        return replace(entry, reading=reading, stacks=stacks, still_s=still_s, patience_s=120.0)

    return changed(stuck("code", state="R", cpu_delta_s=0.9), 1, change)


def test_a_rank_that_computes_far_longer_than_its_steps_took_where_each_comes_through_is_hung() -> None:
    found = diagnose(computing(130.0))
    assert (found.status, found.verdict.cause) == (Status.HUNG, "user-code-blocked")
    assert found.verdict.culprits[0].rank == 1
    assert (
        "each step of rank 1 goes through train.py:20: it has made 40, the recent ones within 0.1 s each, and has been"
        " in this one for 2 min 10 s"
    ) in found.verdict.evidence


@pytest.mark.parametrize(
    "healthy",
    [
        computing(110.0),  # the usual patience has not run out
        computing(130.0, slowest_s=5.0),  # its steps are slow as well
        computing(130.0, steps=3),  # too few to know what is usual
        computing(130.0, turn=None),  # not every step comes there: an evaluation
    ],
)
def test_a_rank_that_may_be_slow_is_given_more_time(healthy: Snapshot) -> None:
    assert diagnose(healthy).status is Status.WAITING


def test_without_knowing_that_each_step_comes_there_it_takes_far_more_time() -> None:
    found = diagnose(computing(700.0, turn=None))
    assert found.status is Status.HUNG
    assert not any("goes through" in sentence for sentence in found.verdict.evidence)
