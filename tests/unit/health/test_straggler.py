"""A rank that the others wait for in each step; ranks that are slow by chance or by a known wait are no news."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.health import HealthWatch
from tests.unit.health.readings import paced, watched


def test_a_slow_rank() -> None:
    (found,) = watched((0.001, 0.02), (0.001, 0.08))
    assert (found.kind, found.ranks) == ("straggler", (1,))
    assert found.summary == (
        "All wait for rank 1 in each step: 81 ms a step until it has made its forward; 21 ms on a typical rank"
    )


def test_a_rank_with_a_slow_loader() -> None:
    (found,) = watched((0.001, 0.02), (0.06, 0.02), (0.001, 0.02))
    assert (found.kind, found.ranks) == ("straggler", (1,))
    assert "most of it waiting for the loader" in found.summary


@pytest.mark.parametrize(
    "costs",
    [
        ((0.001, 0.02), (0.001, 0.025)),
        ((0.001, 0.001), (0.001, 0.015)),  # 15 times as slow, but by milliseconds
        ((0.05, 0.01), (0.0, 0.06)),  # rank 1 waits in its forward for the buffers of rank 0, which has no data yet
        ((0.001, 0.0), (0.04, 0.0)),  # no forward is seen: nobody knows where the ranks meet
        ((0.001, 0.02),),
    ],
)
def test_no_rank_is_slow(costs: tuple[tuple[float, float], ...]) -> None:
    assert watched(*costs) == ()


def test_one_window_is_not_enough() -> None:
    assert watched((0.001, 0.02), (0.001, 0.08), windows=1) == ()


def test_a_restarted_rank_starts_a_new_window() -> None:
    watch = HealthWatch()
    for steps in (10, 70):
        watch([paced(0, steps, 0.001, 0.02), paced(1, steps, 0.001, 0.08)])
    again = paced(1, 130, 0.001, 0.08)
    again = replace(again, identity=replace(again.identity, pid=999))
    assert watch([paced(0, 130, 0.001, 0.02), again]) == ()
