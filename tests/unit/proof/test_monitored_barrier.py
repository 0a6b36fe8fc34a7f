"""A monitored barrier has no number: the members that are not inside it are those that it waits for."""

from __future__ import annotations

import pytest

from hangwatch.facts.case import Case
from hangwatch.model import Collective, Frame, RankEvidence
from tests.unit.job import C10D, IN_CODE, NOW, SCRIPT, blamed, judge, rank, snapshot, told

BARRIER = (Frame(C10D, 5435, "monitored_barrier"), Frame(SCRIPT, 8, "main"))


def _inside(number: int) -> RankEvidence:
    made = Collective("0", 0, "monitored_barrier", frames=BARRIER, at=NOW - 40, step=5)
    return rank(number, BARRIER, calls=(made,), world_size=3, issued=6, completed=6)


def _at_work(number: int, **parts: float) -> RankEvidence:
    return rank(number, IN_CODE, world_size=3, issued=6, completed=6, **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("late", [0, 1, 2])
def test_the_rank_that_has_not_come_is_awaited_and_stuck_where_it_stands(late: int) -> None:
    ranks = [_at_work(number) if number == late else _inside(number) for number in range(3)]
    case = Case(snapshot(*ranks))
    assert case.awaited() == {late}
    assert not case.deadlocked  # its timeout ends the wait
    judgement = judge(*ranks)
    assert told(judgement) == ("user-code-blocked", "likely", "hung")
    assert [number for number, _, _ in blamed(judgement)] == [late]


def test_a_rank_that_takes_its_time_is_not_called_hung() -> None:
    assert told(judge(_inside(0), _at_work(1, patience_s=1e6), _inside(2)))[2] == "waiting"


def test_where_all_have_come_no_rank_is_awaited() -> None:
    assert Case(snapshot(*(_inside(number) for number in range(3)))).awaited() == frozenset()
