"""A host that came late to a call: no device or network is at fault for the time in which it was awaited."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from hangwatch.commands import evidence_files
from hangwatch.model import Status
from tests.dump_programs import LOSS, TURN
from tests.dump_verdicts import blamed, verdict_on
from tests.dump_world import JobDumps, Step, StuckKernel, every

NS = 10**9
LATE: dict[int, list[Step]] = {2: [*TURN * 3, StuckKernel(), *LOSS, *TURN]}


def late_job(folder: Path, late_s: float, written_s: float) -> None:
    """Rank 2 enqueues its fourth turn so long after the others, and the files are so much younger than those calls."""
    job = JobDumps(every(4, [*TURN * 3, *LOSS, *TURN], LATE))
    for rank, document in job.documents().items():
        entries: list[dict[str, Any]] = document["entries"]
        first = next(entry["time_created_ns"] for entry in entries if entry["state"] != "completed")
        if rank == 2:
            for entry in entries:
                entry["time_created_ns"] += int(late_s * NS) if entry["state"] != "completed" else 0
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(document, protocol=2))
        os.utime(path, ns=(0, first + int(written_s * NS)))


@pytest.mark.parametrize("late_s", [400.0, 599.0])
def test_a_host_that_came_late_is_no_kernel_that_does_not_finish(late_s: float, tmp_path: Path) -> None:
    late_job(tmp_path, late_s, 601.0)
    found = verdict_on(tmp_path)
    assert blamed(found) == [2]
    assert "Rank 2 enqueued all_reduce 13 of the default group (train.py:80) " in found.summary
    assert "its host was late" in found.summary
    assert found.cause == "undetermined"
    assert any("rank 2 made no call for" in text for text in found.evidence)
    assert any("torch gives up after 10 min" in text for text in found.evidence)


@pytest.mark.parametrize("late_s", [0.0, 200.0])
def test_a_device_that_had_the_call_for_most_of_the_wait_is_told_of(late_s: float, tmp_path: Path) -> None:
    late_job(tmp_path, late_s, 601.0)
    assert "the device of rank 2 has not started it" in verdict_on(tmp_path).summary


def test_before_the_timeout_the_job_may_go_on(tmp_path: Path) -> None:
    late_job(tmp_path, 400.0, 410.0)
    found = evidence_files.sort_out([tmp_path]).assessment.judgement
    assert found is not None
    assert found.status is Status.WAITING
    assert "its host was late" in found.verdict.summary
