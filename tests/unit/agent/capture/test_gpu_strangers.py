"""Which processes on the job's GPUs are looked into: this user's, visible here, no part of the job."""

from __future__ import annotations

import os
from pathlib import Path

from hangwatch.model import GpuFacts, NodeFacts, ProcessEvidence, ProcessFacts, RankEvidence
from hangwatch_agent.capture.gpu_strangers import with_strangers
from hangwatch_agent.capture.options import CaptureResult
from hangwatch_agent.capture.stacks.py_spy import Dump
from tests.unit.agent.capture.made_up import process


def taken(processes: dict[int, int]) -> CaptureResult:
    ranks = (RankEvidence(0, "a", 100, gpu=0, workers=(ProcessEvidence("loader-worker", ProcessFacts(101, "S")),)),)
    launcher = (ProcessEvidence("launcher", ProcessFacts(50, "S")),)
    gpus = (GpuFacts(0, "GPU-0", "H200", processes=processes), GpuFacts(1, "GPU-1", "H200", processes={100: 1, 900: 9}))
    return CaptureResult(20.0, ranks, launcher, (), NodeFacts("a", gpus=gpus), ())


def found(proc: Path, processes: dict[int, int], user: int | None = None) -> list[tuple[str, int]]:
    result = with_strangers(taken(processes), proc=proc, user=user, dump=Dump)
    return [(each.role, each.facts.pid) for each in result.others]


def test_those_that_are_no_part_of_the_job(tmp_path: Path) -> None:
    for pid in (100, 101, 50, 700, 701, 900):
        process(tmp_path, pid, command="python old.py", environment={"RANK": "3"})
    assert found(tmp_path, {100: 9, 101: 2, 50: 1, 700: 5, 701: 7, os.getpid(): 3}) == [
        ("stranger", 701),
        ("stranger", 700),
    ]


def test_what_cannot_be_seen_here_is_left_out(tmp_path: Path) -> None:
    process(tmp_path, 700)
    assert found(tmp_path, {100: 9, 700: 5, 888: 5}) == [("stranger", 700)]
    assert found(tmp_path, {100: 9, 700: 5}, user=os.getuid() + 1) == []


def test_pids_of_a_host_that_is_not_ours_mean_others(tmp_path: Path) -> None:
    """In a container NVML tells the host's pids: no rank is among them, and 700 is another process here."""
    process(tmp_path, 700)
    assert found(tmp_path, {31000: 9, 700: 5}) == []
