"""A job that a rank runs in a process of its own is no part of the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hangwatch_agent.roster.nested import Nested
from hangwatch_agent.roster.rank_states import RankState
from tests.unit.agent.readings import blocked, rank_state

HERE, ELSEWHERE = ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for port in ("29500", "29655"))
PARENTS: Mapping[int, tuple[int, ...]] = {1000: (10,), 1001: (10,), 2000: (1999, 1000, 10)}


def known(below: RankState, **parts: Any) -> list[int]:
    """The pids that count as ranks, of two ranks and a process below rank 0."""
    ranks = [rank_state(number, environment=HERE, **{"heads": blocked(), **parts}) for number in (0, 1)]
    return [each.pid for each in Nested(lambda pid: PARENTS[pid]).without([*ranks, below])]


@pytest.mark.parametrize(
    ("rank", "environment"), [(0, HERE), (0, ELSEWHERE), (1, ELSEWHERE)], ids=["its rank", "both", "another port"]
)
def test_a_job_that_a_rank_has_started_is_left_out(rank: int, environment: dict[str, str]) -> None:
    assert known(rank_state(rank, pid=2000, environment=environment)) == [1000, 1001]


def test_a_rank_that_a_launching_rank_has_started_is_one() -> None:
    """As Lightning's launcher does: in the same job, with a rank of its own."""
    assert known(rank_state(1, pid=2000, environment=HERE)) == [1000, 1001, 2000]


def test_a_process_that_is_in_no_group_may_be_a_launcher() -> None:
    assert known(rank_state(0, pid=2000, environment=ELSEWHERE), heads=()) == [1000, 1001, 2000]


def test_each_is_looked_at_once() -> None:
    """Its parent may end before it."""
    nested, below = Nested(lambda pid: PARENTS[pid]), rank_state(0, pid=2000, environment=HERE)
    above = rank_state(0, environment=HERE, heads=blocked())
    assert nested.without([above, below]) == (above,)
    assert nested.without([below]) == ()
