"""Sets in which nothing waits: that all ranks were idle for long is told, and a job in motion is not called hung."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hangwatch.commands import evidence_files
from hangwatch.model import Certainty, Status
from hangwatch.queues import Assessment
from tests.dump_programs import BUCKETS, TURN
from tests.dump_world import Call, JobDumps, Step, Sync, every


def _judged(job: JobDumps, folder: Path) -> Assessment:
    job.write(folder)
    return evidence_files.sort_out([folder]).assessment


def test_of_ranks_that_made_no_call_for_long_it_is_said_since_when(tmp_path: Path) -> None:
    found = _judged(JobDumps(every(4, TURN * 4), written_after_s=2400.0), tmp_path)
    assert found.judgement is None
    assert found.sentences[0].startswith("no collective is waiting in these dumps: all that the 4 ranks enqueued")
    assert "since 2025-11-13 02:13:20 UTC no rank has made a call" in found.sentences[1]
    assert "40 min before the dumps were written" in found.sentences[1]
    assert "look at their stacks" in found.sentences[1]


def test_a_call_on_its_way_is_no_idle_job(tmp_path: Path) -> None:
    found = _judged(JobDumps(every(4, TURN * 4), written_after_s=3.0), tmp_path)
    assert found.sentences[0].startswith("nothing is wrong in these dumps")


@pytest.mark.parametrize("date", [0.0, None])
def test_devices_that_are_all_in_a_call_as_long_as_ever_may_go_on(date: float | None, tmp_path: Path) -> None:
    """GIVEN files that were copied, or have no date of use."""
    last: list[Step] = [Call("all_reduce", 71, 4096), Sync()]
    job = JobDumps(every(4, [*TURN * 6, *last]), meetings=24, written_after_s=None)
    job.write(tmp_path)
    for path in tmp_path.iterdir() if date is not None else ():
        os.utime(path, (0, 0))
    found = evidence_files.sort_out([tmp_path]).assessment.judgement
    assert found is not None
    assert (found.status, found.verdict.certainty) == (Status.WAITING, Certainty.UNDETERMINED)
    assert any("no longer than such calls before" in said for said in found.verdict.details)


def test_where_other_calls_came_long_behind_it_all_devices_are_stuck_in_it(tmp_path: Path) -> None:
    job = JobDumps(every(4, BUCKETS * 12), broken={"world": 20}, written_after_s=None)
    found = _judged(job, tmp_path).judgement
    assert found is not None
    assert (found.status, found.verdict.certainty) == (Status.HUNG, Certainty.LIKELY)
