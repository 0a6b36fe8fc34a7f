"""All ranks wait for data; some of them waiting is no news."""

from __future__ import annotations

import pytest

from tests.unit.health.readings import kinds, watched


def test_all_wait_for_data() -> None:
    (found,) = watched((0.06, 0.02), (0.055, 0.02))
    assert (found.kind, found.ranks) == ("data-bound", (0, 1))
    assert "55% of its time or more" in found.summary


@pytest.mark.parametrize("costs", [((0.04, 0.02), (0.06, 0.02)), ((0.002, 0.02), (0.03, 0.02))])
def test_only_some_wait_for_data(costs: tuple[tuple[float, float], ...]) -> None:
    assert "data-bound" not in kinds(watched(*costs))


def test_where_work_is_queued_on_a_gpu_waiting_may_cost_nothing() -> None:
    assert watched((0.06, 0.02), (0.06, 0.02), backend="cuda:nccl") == ()
    assert kinds(watched((0.085, 0.01), (0.085, 0.01), backend="cuda:nccl")) == ["data-bound"]
