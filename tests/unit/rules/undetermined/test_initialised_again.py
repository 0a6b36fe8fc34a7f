"""A second init_process_group, after the first group was destroyed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import Collectives, ExceptionFacts, Frame, GroupHead, GroupMade, Phase, RankEvidence
from tests.unit.job import IN_BARRIER, IN_CODE, IN_MESH, NOW, SCRIPT, blamed, judge, rank, told

INIT = Frame(SCRIPT, 50, "main")
MESH = (("0", (0, 1)), ("tp", (0, 1)), ("tp", (2, 3)))  # names and members, in the order in which they are made


def again(
    number: int, *, name: str = "0", done: bool = False, stack: tuple[Frame, ...] = IN_MESH, **parts: Any
) -> RankEvidence:
    made = (GroupMade(0, (0, 1), "0", True, INIT), GroupMade(1, (), name, done, INIT))
    return rank(number, stack, phase=Phase.READY if done else Phase.INIT, groups_made=made, **parts)


def with_heads(evidence: RankEvidence, heads: tuple[GroupHead, ...]) -> RankEvidence:
    assert evidence.reading is not None
    return replace(evidence, reading=replace(evidence.reading, heads=heads), collectives=Collectives(heads))


def test_ranks_that_are_not_connected_a_second_time() -> None:
    judgement = judge(again(0), again(1))
    assert told(judgement) == ("undetermined", "undetermined", "hung")
    assert blamed(judgement) == []
    assert "called init_process_group a second time (train.py:50)" in judgement.verdict.summary
    assert "PrefixStore" in judgement.verdict.fix


def test_a_rank_that_failed_in_it_is_not_blamed() -> None:
    refused = ExceptionFacts("RuntimeError", "Gloo connectFullMesh failed: Connection refused", (INIT,), at=NOW - 1)
    judgement = judge(again(0), again(1, exception=refused))
    assert (judgement.status.value, blamed(judgement)) == ("failed", [])
    assert "rank 1 failed there" in judgement.verdict.summary


def test_a_second_group_over_the_connections_of_the_first_completes_nothing() -> None:
    """What holds the first group, such as a model, keeps it listening."""
    stuck = [again(number, done=True, stack=IN_BARRIER, issued=1, completed=-1) for number in range(2)]
    judgement = judge(*stuck)
    assert (judgement.status.value, blamed(judgement)) == ("hung", [])
    assert "do not reach one another" in judgement.verdict.summary
    late = [stuck[0], again(1, done=True, stack=IN_CODE, issued=0, completed=-1)]
    assert "a second time" not in judge(*late).verdict.summary
    used = [again(number, done=True, stack=IN_BARRIER, issued=3, completed=2) for number in range(2)]
    assert "a second time" not in judge(*used).verdict.summary


def test_subgroups_of_one_name_are_not_made_again() -> None:
    """The groups of a mesh share their name; where no recorder runs, nothing shows which calls are complete."""
    made = tuple(GroupMade(index, ranks, name, True, INIT) for index, (name, ranks) in enumerate(MESH))
    heads = (GroupHead("tp", (0, 1), "tp", "nccl", 1, -1),)
    ranks = [with_heads(rank(number, IN_BARRIER, groups_made=made), heads) for number in range(2)]
    assert "a second time" not in judge(*ranks).verdict.summary


@pytest.mark.parametrize(
    "other",
    [again(1, name="second"), again(1, done=True), rank(1, IN_MESH, phase=Phase.INIT)],
    ids=["a name of its own", "it is through", "its first group"],
)
def test_other_starts_are_none(other: RankEvidence) -> None:
    assert "a second time" not in judge(again(0), other).verdict.summary
