"""What NVML says of GPUs. Its figures stand in for a machine that has some."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import ExceptionFacts, GpuFacts, GroupHead, RankEvidence, Stage
from tests.unit.diagnosis.job import IN_BACKWARD, IN_CODE, IN_ITEM, blamed, judge, rank, told

SPINNING = {"utilization_percent": 100, "power_w": 130.0, "power_limit_w": 700.0}
IDLE = {"utilization_percent": 0, "power_w": 90.0, "power_limit_w": 700.0}


def gpu(index: int, **figures: Any) -> GpuFacts:
    return GpuFacts(index, f"GPU-{index}", "NVIDIA H200", **figures)


def node(*gpus: GpuFacts) -> dict[str, Any]:
    return {"gpus": gpus}


def on(number: int, device: int | None = None, stack: Any = IN_ITEM, **parts: Any) -> RankEvidence:
    evidence = {"gpu": number if device is None else device, **parts.pop("evidence", {})}
    return rank(number, stack, evidence=evidence, **parts)


def in_first_collective(number: int, device: int | None = None) -> RankEvidence:
    made = on(number, device, IN_BACKWARD)
    heads = (GroupHead("0", (0, 1), "", "nccl", 1, -1),)
    return type(made)(**{**vars(made), "collectives": type(made.collectives)(heads)})


def test_one_gpu_spins_and_all_wait() -> None:
    judgement = judge(on(0), on(1), on(2), node=node(gpu(0, **IDLE), gpu(1, **SPINNING), gpu(2, **IDLE)), world_size=3)
    assert told(judgement) == ("device-stall", "likely", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert judgement.stage is Stage.DEVICE
    assert "GPU 1 of node-a (rank 1) is 100 % used at 130 of 700 W" in judgement.verdict.evidence


def test_all_wait_and_no_gpu_stands_out() -> None:
    judgement = judge(on(0), on(1), node=node(gpu(0, **SPINNING), gpu(1, **SPINNING)))
    assert told(judgement)[:2] == ("device-stall", "undetermined")
    assert blamed(judgement) == []


def test_without_figures_nothing_is_said_of_devices() -> None:
    assert judge(on(0), on(1)).verdict.cause == "undetermined"


def test_a_gpu_that_is_lost() -> None:
    lost = gpu(1, serial="1650", errors=("GPU is lost",))
    judgement = judge(on(0), on(1), node=node(gpu(0, **IDLE), lost))
    assert told(judgement) == ("gpu-fault", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "(NVIDIA H200, serial number 1650) has failed: GPU is lost" in judgement.verdict.summary


@pytest.mark.parametrize("error", ["Xid 79", "GPU is lost", "Xid 119"])
def test_a_gpu_that_is_lost_under_hosts_whose_wait_nobody_sees(error: str) -> None:
    """`.item()` has no Python frame, and without ptrace there are no native ones: the line looks like work."""
    figures = node(gpu(0, **SPINNING), gpu(1, errors=(error,)))
    parts: dict[str, Any] = {"facts": {"cpu_delta_s": 1.0, "state": "R"}}
    judgement = judge(on(0, stack=IN_CODE, **parts), on(1, stack=IN_CODE, **parts), node=figures)
    assert told(judgement) == ("gpu-fault", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]


def test_an_xid_is_told_in_words() -> None:
    judgement = judge(on(0), on(1), node=node(gpu(0, **IDLE), gpu(1, errors=("Xid 13", "Xid 79"))))
    assert "has failed: Xid 79 (it has fallen off the bus)." in judgement.verdict.summary


@pytest.mark.parametrize("error", ["Xid 13", "Xid 31", "Xid 43", "Xid 45", "Xid 63"])
def test_the_mistake_of_a_program_is_no_fault_of_its_gpu(error: str) -> None:
    """Another job's, perhaps, an hour ago: the driver tells of it under the GPU."""
    judgement = judge(on(0), on(1), node=node(gpu(0, **IDLE), gpu(1, errors=(error,), **SPINNING)))
    assert judgement.verdict.cause == "device-stall"


def test_a_gpu_that_is_lost_to_nobody_here() -> None:
    """The ranks compute, on GPUs of their own."""
    parts: dict[str, Any] = {"facts": {"cpu_delta_s": 1.0, "state": "R"}}
    figures = node(gpu(0), gpu(1), gpu(2, errors=("Xid 79",)))
    judgement = judge(on(0, stack=IN_CODE, **parts), on(1, stack=IN_CODE, **parts), node=figures)
    assert judgement.verdict.cause != "gpu-fault"


def test_an_old_error_of_a_job_that_computes() -> None:
    scarred = gpu(0, errors=("2 corrected errors",))
    computing = rank(0, (), evidence={"gpu": 0}, facts={"cpu_delta_s": 0.9})
    assert judge(computing, node=node(scarred)).verdict.cause != "gpu-fault"


def test_gpus_that_do_not_reach_each_other() -> None:
    ranks = [in_first_collective(number) for number in (0, 1)]
    judgement = judge(*ranks, node=node(gpu(0, **SPINNING), gpu(1, **SPINNING)))
    assert told(judgement)[:2] == ("interconnect-stall", "likely")
    assert blamed(judgement) == []


WORKS = {"utilization_percent": 100, "power_w": 640.0, "power_limit_w": 700.0}


@pytest.mark.parametrize("figures", [(SPINNING, WORKS), (IDLE, IDLE)], ids=["one computes", "none is used"])
def test_a_first_collective_for_which_the_gpus_do_not_all_wait(figures: tuple[dict[str, Any], ...]) -> None:
    """A long kernel before it, or hosts that have not come to their devices yet."""
    ranks = [in_first_collective(number) for number in (0, 1)]
    gpus = (gpu(number, **each) for number, each in enumerate(figures))
    assert judge(*ranks, node=node(*gpus)).verdict.cause != "interconnect-stall"


def test_a_later_collective_is_no_sign_that_gpus_never_reached_each_other() -> None:
    heads = (GroupHead("0", (0, 1), "", "nccl", 9, 8),)
    made = (replace(each, collectives=type(each.collectives)(heads)) for each in map(in_first_collective, (0, 1)))
    judgement = judge(*made, node=node(gpu(0, **SPINNING), gpu(1, **SPINNING)))
    assert judgement.verdict.cause != "interconnect-stall"


def test_two_ranks_on_one_gpu() -> None:
    ranks = [in_first_collective(number, 0) for number in (0, 1)]
    judgement = judge(*ranks, node=node(gpu(0, **SPINNING)))
    assert told(judgement)[:2] == ("duplicate-gpu", "likely")
    assert {rank for rank, _, _ in blamed(judgement)} == {0, 1}
    assert "bound to GPU 0 of node-a" in judgement.verdict.summary


@pytest.mark.parametrize("settings", [{"NCCL_HOSTID": "h0"}, {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}])
def test_ranks_that_share_a_gpu_on_purpose(settings: dict[str, str]) -> None:
    ranks = []
    for number in (0, 1):
        made = in_first_collective(number, 0)
        assert made.reading is not None
        identity = replace(made.reading.identity, environment=settings)
        ranks.append(replace(made, reading=replace(made.reading, identity=identity)))
    assert judge(*ranks, node=node(gpu(0, **SPINNING))).verdict.cause != "duplicate-gpu"


def test_nccl_says_so_itself() -> None:
    error = ExceptionFacts(
        "DistBackendError", "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000", ()
    )
    judgement = judge(on(0, 0, exception=error), on(1, 0, exception=error), node=node(gpu(0)))
    assert judgement.verdict.cause in ("duplicate-gpu", "exception-on-one-rank")
