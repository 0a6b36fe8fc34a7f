"""Ranks of whole nodes without a dump: their files were mostly not collected, and none of these ranks is to blame."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.model import Verdict
from tests.dump_programs import BUCKETS, LOSS, TURN, pipeline
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import JobDumps, Join, every

SECOND = tuple(range(8, 16))


def _told(found: Verdict) -> bool:
    return any("may be whole nodes, whose dumps were probably not collected" in said for said in found.details)


@pytest.mark.parametrize("world", [24, 32])
def test_of_several_nodes_the_one_without_dumps_is_not_blamed(world: int, tmp_path: Path) -> None:
    found = verdict(JobDumps(every(world, TURN * 8, {12: [*TURN * 5]}), silent=SECOND), tmp_path)
    assert (blamed(found), found.certainty) == ([], "undetermined")
    assert _told(found)
    assert not any("ended or is frozen" in said for said in found.evidence)
    assert "no dump of ranks 8-15" in found.summary


def test_a_few_ranks_without_dumps_are_named_as_before(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(32, TURN * 8, {12: [*TURN * 5]}), silent=(12, 13, 14)), tmp_path)
    assert blamed(found) == [12, 13, 14]
    assert not _told(found)


def test_a_stage_that_waits_for_a_stage_of_such_a_node(tmp_path: Path) -> None:
    programs = {rank: pipeline(rank, 4, last=15) for rank in range(16)}
    programs[9] = programs[9][:2]
    found = verdict(JobDumps(programs, {"pipe": tuple(range(16))}, silent=SECOND), tmp_path)
    assert blamed(found) == []
    assert found.fix == "give the records of rank 8 too"


def test_a_rank_with_a_dump_that_did_not_come_is_still_named(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(16, TURN * 8, {3: [*TURN * 5]}), silent=SECOND), tmp_path)
    assert blamed(found) == [3]
    assert _told(found)


def test_a_call_that_a_rank_with_a_dump_left_out_is_still_told(tmp_path: Path) -> None:
    programs = every(16, TURN * 8, {3: [*TURN * 4, *BUCKETS[1:], Join(), *LOSS, *TURN * 3]})
    found = verdict(JobDumps(programs, silent=SECOND), tmp_path)
    assert (found.cause, blamed(found)) == ("skipped-collective", [3])
    assert _told(found)
