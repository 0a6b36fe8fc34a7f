"""`gpu-fault`: a GPU has failed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.job import IN_CODE, blamed, judge, rank, told
from tests.unit.rules.device.gpus import IDLE, SPINNING, gpu, node, on


def test_a_gpu_that_is_lost() -> None:
    lost = gpu(1, serial="1650", errors=("GPU is lost",))
    judgement = judge(on(0), on(1), node=node(gpu(0, **IDLE), lost))
    assert told(judgement) == ("gpu-fault", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "(NVIDIA H200, serial number 1650) has failed: GPU is lost" in judgement.verdict.summary


@pytest.mark.parametrize("error", ["Xid 79", "GPU is lost", "Xid 119"])
def test_a_gpu_that_is_lost_under_hosts_whose_wait_is_not_seen(error: str) -> None:
    """`.item()` has no Python frame, and without ptrace there are no native ones: the line looks like work."""
    figures = node(gpu(0, **SPINNING), gpu(1, errors=(error,)))
    parts: dict[str, Any] = {"facts": {"cpu_delta_s": 1.0, "state": "R"}}
    judgement = judge(on(0, stack=IN_CODE, **parts), on(1, stack=IN_CODE, **parts), node=figures)
    assert told(judgement) == ("gpu-fault", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]


def test_an_xid_is_told_in_words() -> None:
    judgement = judge(on(0), on(1), node=node(gpu(0, **IDLE), gpu(1, errors=("Xid 13", "Xid 79"))))
    assert "has failed: Xid 79 (it has fallen off the bus)." in judgement.verdict.summary


def test_a_gpu_that_is_lost_and_used_by_no_rank() -> None:
    """The ranks compute, on GPUs of their own."""
    parts: dict[str, Any] = {"facts": {"cpu_delta_s": 1.0, "state": "R"}}
    figures = node(gpu(0), gpu(1), gpu(2, errors=("Xid 79",)))
    judgement = judge(on(0, stack=IN_CODE, **parts), on(1, stack=IN_CODE, **parts), node=figures)
    assert judgement.verdict.cause != "gpu-fault"


def test_an_old_error_of_a_job_that_computes() -> None:
    scarred = gpu(0, errors=("2 corrected errors",))
    computing = rank(0, (), evidence={"gpu": 0}, facts={"cpu_delta_s": 0.9})
    assert judge(computing, node=node(scarred)).verdict.cause != "gpu-fault"
