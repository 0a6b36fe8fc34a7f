"""`new-group-mismatch`: new_group was not called alike everywhere."""

from __future__ import annotations

from hangwatch.model import Frame, Phase
from tests.unit.job import IN_BARRIER, IN_CODE, IN_NEW_GROUP, SCRIPT, blamed, judge, made, member, told


def test_different_lists() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, done=False),), phase=Phase.GROUP),
        member(1, IN_BARRIER, (made(1, 0, 2, line=22),)),
        member(2, IN_BARRIER, (made(1, 0, 1),)),
    )
    assert told(judgement) == ("new-group-mismatch", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.verdict.culprits[0].where == Frame(SCRIPT, 22, "main")
    assert "call 1 was made with ranks 0 and 2 [0, 1] and rank 1 [0, 2]" in judgement.verdict.summary


def test_without_a_majority_both_sides_are_named() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, done=False),), phase=Phase.GROUP),
        member(1, IN_NEW_GROUP, (made(1, 1, 2, done=False),), phase=Phase.GROUP),
    )
    assert {rank for rank, _, _ in blamed(judgement)} == {0, 1}


def test_a_member_that_never_called_it() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, 2, done=False),), phase=Phase.GROUP),
        member(1, IN_NEW_GROUP, (made(1, 0, 1, 2, done=False),), phase=Phase.GROUP),
        member(2, IN_BARRIER),
    )
    assert told(judgement) == ("new-group-mismatch", "proven", "hung")
    assert blamed(judgement) == [(2, 102, "rank")]


def test_a_member_that_is_only_late() -> None:
    judgement = judge(
        member(0, IN_NEW_GROUP, (made(1, 0, 1, done=False),), phase=Phase.GROUP),
        member(1, IN_CODE, patience_s=120.0),
        member(2, IN_BARRIER),
    )
    assert told(judgement) == ("user-code-blocked", "likely", "waiting")
    assert blamed(judgement) == [(1, 101, "rank")]


def test_equal_calls_are_no_mismatch() -> None:
    ranks = [member(number, IN_NEW_GROUP, (made(1, 0, 1, 2, done=False),), phase=Phase.GROUP) for number in range(3)]
    assert judge(*ranks).verdict.cause != "new-group-mismatch"
