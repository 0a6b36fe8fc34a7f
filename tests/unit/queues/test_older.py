"""A dump that is hours older than the others is told as such, and proves nothing."""

from __future__ import annotations

import os
from pathlib import Path

from hangwatch.commands import evidence_files
from hangwatch.model import Certainty
from tests.dump_programs import TURN
from tests.dump_verdicts import verdict_on
from tests.dump_world import Call, JobDumps, every

ALONE = {3: [*TURN * 3, Call("all_reduce", 131, 1, dtype="Float"), *TURN]}


def _write(job: JobDumps, folder: Path, hours: float) -> None:
    """The files of a job, that of rank 3 as of some hours earlier."""
    job.write(folder)
    path = folder / "nccl_trace_rank_3"
    then = path.stat().st_mtime_ns - int(hours * 3600e9)
    os.utime(path, ns=(then, then))


def test_a_dump_that_is_hours_older_is_told_and_proves_nothing(tmp_path: Path) -> None:
    _write(JobDumps(every(4, TURN * 8, ALONE)), tmp_path, 2)
    found = verdict_on(tmp_path)
    assert found.certainty is Certainty.UNDETERMINED
    assert any(each.startswith("The dump of rank 3 is 2 h 0 min older than most") for each in found.details)


def test_a_dump_of_some_minutes_before_proves_as_much_as_any(tmp_path: Path) -> None:
    _write(JobDumps(every(4, TURN * 8, ALONE)), tmp_path, 0.05)
    found = verdict_on(tmp_path)
    assert found.certainty is Certainty.PROVEN
    assert not any("older than most" in each for each in found.details)


def test_of_a_job_that_is_well_the_older_dump_is_told_too(tmp_path: Path) -> None:
    _write(JobDumps(every(4, TURN * 8)), tmp_path, 3)
    found = evidence_files.sort_out([tmp_path]).assessment
    assert found.judgement is None
    assert any(each.startswith("the dump of rank 3 is 3 h 0 min older than most") for each in found.sentences)
