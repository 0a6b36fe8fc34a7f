"""Versions and devices that are known to hang: told beside a verdict, and only where they are this job's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.judge.version_hints import TABLE
from hangwatch.model import Collectives, Frame, Judgement, RankEvidence
from tests.unit.job import FETCHING, IN_BARRIER, IN_CODE, blamed, feeding, judge, rank, starting, worker
from tests.unit.rules.device.gpus import SPINNING, gpu, in_first_collective, node
from tests.unit.simulator import TORCH

HINT = "Hint, not the cause: "


def told(judgement: Judgement) -> list[str]:
    return [sentence.removeprefix(HINT) for sentence in judgement.verdict.details if sentence.startswith(HINT)]


def with_torch(entry: RankEvidence, version: str, **environment: str) -> RankEvidence:
    assert entry.reading is not None
    identity = replace(entry.reading.identity, torch_version=version)
    identity = replace(identity, environment={**identity.environment, **environment})
    return replace(entry, reading=replace(entry.reading, identity=identity))


def stalled(version: str = "2.13.0", name: str = "NVIDIA H200", driver: str = "", **environment: str) -> Judgement:
    """Two GPUs that spin in their first collective."""
    ranks = [with_torch(in_first_collective(number), version, **environment) for number in (0, 1)]
    facts = node(*(replace(gpu(number, **SPINNING), name=name) for number in (0, 1)))
    judgement = judge(*ranks, node={**facts, "driver": driver})
    assert judgement.verdict.cause == "interconnect-stall"
    return judgement


def test_torch_2_7_0() -> None:
    judgement = stalled("2.7.0+cu126")
    (hint,) = told(judgement)
    assert hint.startswith("torch 2.7.0 can hang in NCCL where init_process_group was given a device_id")
    assert hint.endswith("(pytorch#153960, May 2025).")
    assert judgement.verdict.details[0].startswith(HINT), "before the sentences about who waits"
    assert (judgement.verdict.cause, blamed(judgement)) == ("interconnect-stall", [])


@pytest.mark.parametrize("version", ["2.7.1", "2.6.0", "2.13.0+cu130", ""])
def test_another_version_is_not_suspected(version: str) -> None:
    assert told(stalled(version)) == []


def test_the_way_out_has_been_taken() -> None:
    assert told(stalled("2.7.0", TORCH_NCCL_USE_COMM_NONBLOCKING="0")) == []


def test_launch_blocking_with_an_old_nccl() -> None:
    assert "CUDA_LAUNCH_BLOCKING=1" in told(stalled("2.0.0+cu117", CUDA_LAUNCH_BLOCKING="1"))[0]
    assert told(stalled("2.0.0+cu117")) == []
    assert told(stalled("2.0.1", CUDA_LAUNCH_BLOCKING="1")) == []


def test_a_driver_and_a_card() -> None:
    both = told(stalled(name="NVIDIA GeForce RTX 4090", driver="545.23.08"))
    assert [hint.partition(":")[0] for hint in both] == [
        "NVIDIA driver 545 hangs in direct transfers between RTX 4090",
        "GeForce RTX 40 and 50 cards do not support direct transfers between GPUs, and some drivers say that they do",
    ]
    assert len(told(stalled(name="NVIDIA GeForce RTX 4090", driver="550.54"))) == 1
    assert told(stalled(name="NVIDIA H200", driver="545.23.08")) == []
    assert told(stalled(name="NVIDIA GeForce RTX 4090", driver="545.23.08", NCCL_P2P_DISABLE="1")) == []


def test_a_single_card_sends_to_no_other() -> None:
    ranks = [with_torch(in_first_collective(0), "2.13.0")]
    facts = node(replace(gpu(0, **SPINNING), name="NVIDIA GeForce RTX 4090"))
    assert told(judge(*ranks, node=facts)) == []


def lost_batch(shm: int | None, **parts: Any) -> Judgement:
    died = worker(0, FETCHING, state="Z", exit_code=-9)
    return judge(feeding(0, died, issued=3, completed=3), node={"shm_total": shm, **parts})


def test_a_small_shared_memory_is_no_hint_beside_a_proven_cause() -> None:
    judgement = lost_batch(64 << 20)
    assert judgement.verdict.cause == "loader-worker-died"
    assert judgement.verdict.certainty.value == "proven"
    assert told(judgement) == []


def test_a_small_shared_memory() -> None:
    idle = replace(worker(0, ()), stacks=(), earlier_stacks=())
    waits = replace(feeding(0, idle, issued=3, completed=3))
    assert told(judge(waits, node={"shm_total": 64 << 20}))[0].startswith("/dev/shm holds 128 MiB at most here")
    assert told(judge(waits, node={"shm_total": 8 << 30})) == []
    assert told(judge(waits)) == []


def test_what_is_said_of_devices_is_not_said_of_code() -> None:
    waiting = with_torch(rank(0, IN_BARRIER, issued=4, completed=3), "2.7.0")
    stuck = with_torch(rank(1, IN_CODE, issued=3, completed=3), "2.7.0")
    nccl = tuple(replace(head, backend="nccl") for head in waiting.collectives.heads)
    judgement = judge(replace(waiting, collectives=Collectives(nccl)), stuck)
    assert judgement.verdict.cause == "user-code-blocked"
    assert told(judgement) == []


def test_every_entry_says_since_when_and_where_from() -> None:
    for known in TABLE:
        assert known.since[-4:].isdigit()
        assert "#" in known.source
        assert not known.sentence.endswith(".")


RESTARTED = {"TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}


def restarted(**environment: str) -> Judgement:
    """Two ranks whose patience runs out within init_process_group."""
    c10d = f"{TORCH}/distributed/distributed_c10d.py"
    frames = (Frame(c10d, 2169, "_new_process_group_helper"), Frame(c10d, 1899, "init_process_group"), *IN_CODE[-1:])
    ranks = [starting(number, frames, still_s=90.0, patience_s=30.0) for number in (0, 1)]
    return judge(*(with_torch(each, "2.13.0", **environment) for each in ranks))


def test_a_restart_that_does_not_come_through_its_start() -> None:
    judgement = restarted(**RESTARTED)
    (hint,) = told(judgement)
    assert "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun" in hint
    assert judgement.verdict.cause == "undetermined"
    assert judgement.verdict.fix.startswith("set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 where torchrun restarts the job")


@pytest.mark.parametrize(("name", "value"), [*((name, "0") for name in RESTARTED), ("TORCHELASTIC_RESTART_COUNT", "?")])
def test_a_first_attempt_or_a_store_of_its_own_is_not_suspected(name: str, value: str) -> None:
    judgement = restarted(**{**RESTARTED, name: value})
    assert told(judgement) == []
    assert "TORCH_DISABLE" not in judgement.verdict.fix
