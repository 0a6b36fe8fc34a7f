"""The warnings together: none of a healthy job, each kind once, and none fails whatever a board says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hangwatch.catalogue import BY_ID
from hangwatch.health import HealthWatch, device_warnings, warnings
from hangwatch.model import (
    NodeFacts,
    RankEvidence,
    Reading,
)
from tests.strategies import record
from tests.unit.health.readings import distributed, kinds, loader, reading


def test_a_healthy_job_gets_no_warning() -> None:
    assert warnings([reading(rank, distributed(rank)) for rank in range(2)]) == ()


def test_every_warning_is_in_the_catalogue_with_its_advice() -> None:
    (found,) = warnings([reading(0, loader(100)), reading(1, loader(101))])
    assert (found.fix, found.at) == (BY_ID["uneven-forecast"].fix, 50.0)


def test_a_kind_is_told_once() -> None:
    watch = HealthWatch()
    ranks = [reading(0, loader(100)), reading(1, loader(101))]
    assert kinds(watch(ranks)) == ["uneven-forecast"]
    assert watch(ranks) == ()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(record(Reading), max_size=4), max_size=4))
def test_no_board_can_make_it_fail(rounds: list[list[Reading]]) -> None:
    watch = HealthWatch()
    for readings in rounds:
        assert all(each.kind in BY_ID for each in watch(readings))


@settings(max_examples=30, deadline=None)
@given(st.lists(record(NodeFacts), max_size=3), st.lists(record(RankEvidence), max_size=4))
def test_no_node_can_make_it_fail(nodes: list[NodeFacts], ranks: list[RankEvidence]) -> None:
    assert all(each.kind in BY_ID for each in device_warnings(nodes, ranks))
