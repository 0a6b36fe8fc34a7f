"""A rank whose stack shows a call that is complete: it stands there no more."""

from __future__ import annotations

import pytest

from hangwatch.judge import Case, diagnose
from tests.unit.job import IN_BARRIER, rank, snapshot


@pytest.mark.parametrize("moved", [False, True])
def test_on_a_host_its_counters_have_to_move_for_a_call_may_be_one_that_they_do_not_count(moved: bool) -> None:
    leaving = rank(0, IN_BARRIER, issued=11, completed=11, evidence={"moved": moved})
    case = Case(snapshot(leaving, rank(1, IN_BARRIER, issued=12, completed=11)))
    assert (0 in case.blocked) is not moved
    assert 1 in case.blocked


def test_a_job_that_moves_as_it_is_looked_at_has_no_culprit() -> None:
    leaving = (rank(n, IN_BARRIER, issued=11, completed=11, world_size=3, evidence={"moved": True}) for n in (0, 2))
    judgement = diagnose(snapshot(*leaving, rank(1, IN_BARRIER, issued=12, completed=11, world_size=3), world_size=3))
    assert (judgement.status, judgement.verdict.culprits) == ("waiting", ())
