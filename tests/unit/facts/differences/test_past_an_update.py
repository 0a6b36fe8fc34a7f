"""Ranks behind a condition on a backward, and others in that backward, with as many optimizer steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.past_an_update import past_an_update
from hangwatch.model import RankEvidence
from tests.unit.facts.differences.test_updates_in_step import LOOP, member
from tests.unit.job import judge, snapshot, told

WITHIN = replace(LOOP, updates=())  # the condition of line 44 has not ended there


def inside(number: int, made: int = 0) -> RankEvidence:
    return member(number, made, loop=WITHIN, line=46)


def test_the_condition_that_came_out_differently_is_the_one_around_the_backward_of_the_others() -> None:
    ranks = (inside(0), member(1, 0, line=50), inside(2))
    found = past_an_update(Case(snapshot(*ranks, world_size=3)))
    assert found is not None
    assert (found.past, found.inside, found.updates) == ((1,), (0, 2), 14)
    judgement = judge(*ranks, world_size=3)
    assert told(judgement)[:2] == ("rank-local-decision", "likely")
    assert [who.rank for who in judgement.verdict.culprits] == [1]
    assert (
        "`if active` (train.py:44) came out differently on the ranks: rank 1 is behind it (train.py:50), and ranks 0"
        " and 2 stand in the backward under it (train.py:46)."
    ) in judgement.verdict.summary
    assert "all ranks have made 14 optimizer steps: none is a turn ahead" in judgement.verdict.evidence


@pytest.mark.parametrize(
    "odd",
    [
        member(1, 1, line=50),  # it has made that update
        member(1, 0, line=42, loop=WITHIN),  # it is ahead of the condition, as when a turn begins
        member(1, 0, line=50, loop=WITHIN),  # no condition lies between
        member(1, -1, begun=15, line=50),  # it was never level with the others
    ],
    ids=["an update more", "ahead of it", "no condition", "never level"],
)
def test_otherwise_the_condition_is_not_known(odd: RankEvidence) -> None:
    assert past_an_update(Case(snapshot(inside(0), odd, inside(2), world_size=3))) is None
