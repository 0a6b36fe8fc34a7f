"""Samplers of another number of ranks, or of one rank; smaller groups and another order are innocent."""

from __future__ import annotations

from hangwatch.health import warnings
from hangwatch.model import (
    GroupHead,
)
from tests.unit.health.readings import distributed, reading


def test_a_sampler_of_another_world() -> None:
    (found,) = warnings([reading(rank, distributed(rank, sampler_replicas=4), world=2) for rank in range(2)])
    assert (found.kind, found.ranks) == ("sampler-world-mismatch", (0, 1))
    assert "among 4 replicas, but the job has 2 ranks" in found.summary


def test_two_samplers_of_one_rank() -> None:
    (found,) = warnings([reading(rank, distributed(0)) for rank in range(2)])
    assert (found.kind, found.ranks) == ("sampler-world-mismatch", (0, 1))


def test_samplers_need_not_span_a_job_with_smaller_groups() -> None:
    # GIVEN two pipelines of two ranks: each pipeline draws its share together
    pairs = (GroupHead("0", (0, 1, 2, 3)), GroupHead("1", (0, 1)))
    assert warnings([reading(rank, distributed(rank // 2), world=4, heads=pairs) for rank in range(4)]) == ()


def test_samplers_may_be_dealt_in_another_order() -> None:
    assert warnings([reading(rank, distributed(1 - rank)) for rank in range(2)]) == ()
