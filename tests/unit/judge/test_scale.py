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
    small, large = (min(_seconds(hang, ranks, cause) for _ in range(3)) for ranks in (256, 1024))

    # THEN four times the ranks take not much more than four times as long; the benchmark holds the promised figures
    assert large < 5  # measured 0.1 s, and 0.6 s under coverage
    assert large < 12 * max(small, 0.005)


@pytest.mark.untraced
def test_the_waits_of_a_verdict_do_not_grow_with_the_ranks() -> None:
    verdict = diagnose(uneven(512)).verdict
    assert len(verdict.waits) == 1
    assert len(verdict.summary) < 300
    assert all(len(sentence) < 300 for sentence in (*verdict.evidence, *verdict.details))
