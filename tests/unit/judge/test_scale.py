"""The judge's cost grows about linearly with the ranks and their records, and stays within its figures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Snapshot
from hangwatch.report.incident import snapshot_of
from scripts import judged
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
    assert [len(wait.waiting) for wait in verdict.waits] == [511, 1]
    assert len(verdict.summary) < 300
    assert all(len(sentence) < 300 for sentence in (*verdict.evidence, *verdict.details))


@pytest.mark.untraced
@pytest.mark.parametrize("name", ["p33-adaptive-recompute-tp", "p37-micro-batch-ramp-send-send"])
def test_a_judgement_looks_at_each_recorded_call_a_limited_number_of_times(name: str) -> None:
    """Of two real programs with full records: each once took millions of looks, and ten seconds."""
    snapshot = snapshot_of([judged.incident(name)])
    recorded = sum(len(rank.board_calls) + len(rank.collectives.recent) for rank in snapshot.ranks)
    made = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal made
        made += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        diagnose(snapshot)
    finally:
        sys.setprofile(before)
    assert recorded > 1000
    assert made < 600 * recorded, f"{made / recorded:.0f} function calls for each of {recorded} recorded calls"
