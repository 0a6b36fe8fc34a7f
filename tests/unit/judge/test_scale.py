"""The judge's cost grows about linearly with the ranks, and stays within its figures."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Snapshot
from tests.unit.big import branches, skipped, uneven


def _seconds(hang: Callable[[int], Snapshot], ranks: int, cause: str) -> float:
    snapshot = hang(ranks)
    began = time.process_time()
    verdict = diagnose(snapshot).verdict
    took = time.process_time() - began
    assert verdict.cause == cause
    assert [culprit.rank for culprit in verdict.culprits] == [ranks - 1]
    return took


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("hang", "cause"),
    [(uneven, "uneven-steps"), (skipped, "skipped-collective"), (branches, "collective-mismatch")],
)
def test_what_a_judgement_costs_grows_about_linearly_with_the_ranks(
    hang: Callable[[int], Snapshot], cause: str
) -> None:
    # GIVEN the same hang on 256 and on 1,024 ranks
    small = min(_seconds(hang, 256, cause) for _ in range(3))
    limit = 12 * max(small, 0.005)  # seconds

    # THEN four times the ranks take not much more than four times as long; the benchmark holds the promised figures
    large: list[float] = []
    while len(large) < 3 and not any(taken < limit for taken in large):
        large.append(_seconds(hang, 1024, cause))
    assert min(large) < limit


@pytest.mark.untraced
def test_the_waits_of_a_verdict_do_not_grow_with_the_ranks() -> None:
    verdict = diagnose(uneven(512)).verdict
    assert len(verdict.waits) == 1
    assert len(verdict.summary) < 300
    assert all(len(sentence) < 300 for sentence in (*verdict.evidence, *verdict.details))
