"""A step that one rank made again after an error: by a report of a real run, and what would speak against it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.tried_again import tried_again_before
from hangwatch.model import RankEvidence, Snapshot
from hangwatch.report.incident import snapshot_of
from scripts import judged


@pytest.fixture(scope="module")
def retried() -> Snapshot:
    return snapshot_of([judged.incident("step-retried-after-its-backward")])


def test_the_error_and_the_decorator_that_catches_it_are_found(retried: Snapshot) -> None:
    found = tried_again_before(Case(retried))
    assert found is not None
    assert [(rank, error.type, error.step) for rank, error in found.errors.items()] == [(2, "OSError", 65)]
    assert [way.where.line for way in found.clauses] == [53]
    assert found.divergence.step == 79


def test_an_error_that_others_caught_as_well_is_no_such_difference(retried: Snapshot) -> None:
    caught = next(rank.reading.caught for rank in retried.ranks if rank.rank == 2 and rank.reading is not None)

    def alike(rank: RankEvidence) -> RankEvidence:
        assert rank.reading is not None
        return replace(rank, reading=replace(rank.reading, caught=caught))

    assert tried_again_before(Case(replace(retried, ranks=tuple(map(alike, retried.ranks))))) is None


def test_where_nothing_is_tried_again_there_is_none(retried: Snapshot) -> None:
    sites = tuple(replace(site, bypasses=()) for site in retried.call_sites)
    assert tried_again_before(Case(replace(retried, call_sites=sites))) is None


def test_a_rank_that_is_no_step_ahead_has_made_none_more(retried: Snapshot) -> None:
    def level(rank: RankEvidence) -> RankEvidence:
        assert rank.reading is not None
        progress = replace(rank.reading.progress, step=79)
        return replace(rank, reading=replace(rank.reading, progress=progress))

    assert tried_again_before(Case(replace(retried, ranks=tuple(map(level, retried.ranks))))) is None
