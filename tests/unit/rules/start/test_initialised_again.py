"""A second init_process_group, after the first group was destroyed."""

from __future__ import annotations

import pytest

from hangwatch.model import ExceptionFacts, Frame, GroupMade, Phase, RankEvidence
from tests.unit.job import IN_MESH, NOW, SCRIPT, blamed, judge, rank, told

INIT = Frame(SCRIPT, 50, "main")


def again(number: int, *, name: str = "0", done: bool = False, **parts: object) -> RankEvidence:
    made = (GroupMade(0, (0, 1), "0", True, INIT), GroupMade(1, (), name, done, INIT))
    return rank(number, IN_MESH, phase=Phase.INIT, groups_made=made, **parts)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    "other",
    [again(1, name="second"), again(1, done=True), rank(1, IN_MESH, phase=Phase.INIT)],
    ids=["a name of its own", "it is through", "its first group"],
)
def test_other_starts_are_none(other: RankEvidence) -> None:
    assert "a second time" not in judge(again(0), other).verdict.summary
