"""`device-stall`: a device does not finish."""

from __future__ import annotations

import pytest

from hangwatch.model import Stage
from tests.unit.job import IN_BARRIER, blamed, judge, told
from tests.unit.rules.device.gpus import IDLE, SPINNING, gpu, node, on


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


def test_nothing_is_said_of_all_devices_where_it_is_not_known_in_which_call_a_rank_waits() -> None:
    """It may make a communicator for which this very rank has not come."""
    judgement = judge(on(0), on(1, stack=IN_BARRIER), node=node(gpu(0, **SPINNING), gpu(1, **SPINNING)))
    assert "The devices do not finish" not in judgement.verdict.summary


def test_without_figures_nothing_is_said_of_devices() -> None:
    assert judge(on(0), on(1)).verdict.cause == "undetermined"


@pytest.mark.parametrize("error", ["Xid 13", "Xid 31", "Xid 43", "Xid 45", "Xid 63"])
def test_the_mistake_of_a_program_is_no_fault_of_its_gpu(error: str) -> None:
    """Another job's, perhaps, an hour ago: the driver tells of it under the GPU."""
    judgement = judge(on(0), on(1), node=node(gpu(0, **IDLE), gpu(1, errors=(error,), **SPINNING)))
    assert judgement.verdict.cause == "device-stall"
