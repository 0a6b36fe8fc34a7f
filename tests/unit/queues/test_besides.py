"""Two faults in groups that share no rank: both are told, and the cause of one is not proven for the other."""

from __future__ import annotations

import pytest

from hangwatch.model import Certainty
from tests.dumps import Job, Op, loop
from tests.unit.queues.test_judgement import judged, verdict

TENSOR = {f"tp{row}": tuple(range(4 * row, 4 * row + 4)) for row in range(4)}
GROUPS: dict[str, tuple[int, ...]] = TENSOR | {f"dp{place}": tuple(range(place, 16, 4)) for place in range(4)}


def _step(rank: int, *, without: int | None = None) -> list[Op]:
    tensor, gradients = f"tp{rank // 4}", Op("all_reduce", 70, 4096, f"dp{rank % 4}")
    layer = [Op("all_reduce", 30, 256, tensor), Op("all_reduce", 40, 512, tensor)]
    return [*(op for op in layer if op.line != without), *layer, gradients]


def _job(**last: list[Op]) -> Job:
    """`last` is what a rank does behind its fourth step, in which it may stop or leave a call out."""
    programs = {rank: loop(7, *_step(rank)) for rank in range(16)}
    for name, steps in last.items():
        rank = int(name.removeprefix("rank"))
        programs[rank] = [*loop(4, *_step(rank)), *steps]
    return Job(16, programs, GROUPS)


def test_two_ranks_that_left_calls_out_in_two_groups_are_both_named() -> None:
    programs = {"rank2": _step(2, without=30) + _step(2), "rank9": _step(9, without=40) + _step(9)}
    found = verdict(_job(**programs))
    assert [each.rank for each in found.culprits] == [2, 9]
    assert (found.cause, found.certainty) == ("skipped-collective", Certainty.LIKELY)
    assert any(said.startswith("Besides, rank 9 left out") for said in found.details)
    assert not {2, 9} & set(found.victims)


def test_a_rank_that_did_not_come_in_another_group_is_named_too() -> None:
    found = verdict(_job(rank2=_step(2, without=30) + _step(2), rank13=[]))
    assert [each.rank for each in found.culprits] == [2, 13]
    assert any(said.startswith("Besides, rank 13 never enqueued all_reduce 17 of group tp3") for said in found.details)


def test_a_rank_without_a_record_in_another_group_is_told_and_not_blamed() -> None:
    job = _job(rank2=_step(2, without=30) + _step(2), rank13=[])
    job.silent = (13,)
    found = verdict(job)
    assert ([each.rank for each in found.culprits], found.certainty) == ([2], Certainty.PROVEN)
    assert any(said.startswith("Besides, ") and "no dump of rank 13" in said for said in found.details)


@pytest.mark.parametrize("culprit", [2, 13])
def test_what_follows_from_the_first_fault_is_no_further_one(culprit: int) -> None:
    """All others wait for it, over the gradients too."""
    found = judged(_job(**{f"rank{culprit}": _step(culprit, without=30) + _step(culprit)})).judgement
    assert found is not None
    assert [each.rank for each in found.verdict.culprits] == [culprit]
    assert not any("Besides" in said for said in found.verdict.details)
