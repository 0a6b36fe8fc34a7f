"""Errors that led past a call, as only the source shows: not where a rank's own record tells of another way past it."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.case import Case
from hangwatch.model import RankEvidence, Snapshot
from hangwatch.report import snapshot_of
from hangwatch.rules.step.exception_on_one_rank.caught import caught_past_a_call
from scripts import judged


def _kept() -> Snapshot:
    return snapshot_of([judged.incident("backward-left-out-of-accumulation")])


def _accumulated_until(rank: RankEvidence, step: int) -> RankEvidence:
    assert rank.reading is not None
    return replace(rank, reading=replace(rank.reading, progress=replace(rank.reading.progress, accumulated_step=step)))


def test_gradients_that_a_rank_kept_are_another_way_past_their_reduction() -> None:
    """WHEN the rank's forward ran below no_sync() in that step THEN no error led past the reduction."""
    snapshot = _kept()
    assert caught_past_a_call(Case(snapshot)) is None
    synchronised = replace(snapshot, ranks=tuple(_accumulated_until(rank, 97) for rank in snapshot.ranks))
    found = caught_past_a_call(Case(synchronised))
    assert found is not None
    assert found.summary.startswith("Rank 0 went on without all_reduce (train.py:31) in epoch 0, batch 99")
