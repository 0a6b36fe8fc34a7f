"""Traces of communicators in dumps (`nccl_comm_state`): they tell what start events tell where there are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hangwatch.model import Judgement
from hangwatch.queues import assess
from hangwatch.recorder import QueueReader
from tests.dumps import Job, Op, alike, loop

STEP = (Op("all_reduce", 20), Op("all_reduce", 21))
CURRENT, LATER = "CT_currentColl", "CT_currentColls"


def state(rank: int, size: int, *, runs: bool, key: str = CURRENT, pending: int = 2) -> dict[str, str]:
    """A communicator's state as builds with a trace write it: JSON in text, `null` or `[]` for nothing."""
    one = {"opName": "AllReduce", "opCount": 13}
    current: Any = (one if runs else None) if key == CURRENT else [one] if runs else []
    waiting = [one] * pending
    return {
        "commHash": "1", "rank": str(rank), "nRanks": str(size), key: json.dumps(current),
        "CT_pendingColls": json.dumps(waiting), "CT_pastColls": "[]",
    }  # fmt: skip


def judged(job: Job, states: dict[int, Any]) -> Judgement | None:
    reader = QueueReader()
    for rank, document in job.documents().items():
        reader.add(rank, document | {"nccl_comm_state": states.get(rank, {})})
    return assess(reader.queues()).judgement


def stuck(world: int = 4, rank: int = 2) -> Job:
    """A job whose device of `rank` does not come to a call that all have enqueued; no start events."""
    return Job(world, alike(world, loop(9, *STEP)), stuck_devices={rank: 13})


@pytest.mark.parametrize("key", [CURRENT, LATER])
def test_a_device_that_has_not_come_to_it_is_told(key: str) -> None:
    found = judged(stuck(), {rank: {"id": state(rank, 4, runs=rank != 2, key=key)} for rank in range(4)})
    assert found is not None
    assert (found.verdict.cause, [who.rank for who in found.verdict.culprits]) == ("device-stall", [2])


def test_all_devices_in_it_is_the_wire() -> None:
    job = Job(4, alike(4, loop(9, *STEP)), cut={"0": 14})
    found = judged(job, {rank: {"id": state(rank, 4, runs=True)} for rank in range(4)})
    assert found is not None
    assert found.verdict.cause == "interconnect-stall"
    assert found.verdict.certainty == "likely"


@pytest.mark.parametrize(
    "states",
    [
        {},
        {rank: {"id": state(rank, 4, runs=rank != 2)} for rank in (0, 1)},  # not of all
        {rank: {"id": state(rank, 8, runs=rank != 2)} for rank in range(4)},  # of another communicator
        {rank: {"id": state(rank, 4, runs=False, pending=0)} for rank in range(4)},  # nothing is there
        {rank: {"id": {"rank": "x", "nRanks": None}} for rank in range(4)},
        {rank: {"id": state(rank, 4, runs=True) | {CURRENT: "{"}} for rank in range(4)},
        {rank: {"id": "no state", "other": 7} for rank in range(4)},
    ],
)
def test_a_trace_that_does_not_tell_changes_nothing(states: dict[int, Any]) -> None:
    found, without = judged(stuck(), states), judged(stuck(), {})
    assert found == without
    assert found is not None
    assert found.verdict.certainty == "undetermined"


def test_two_groups_of_the_same_members_are_not_mixed_up() -> None:
    job = stuck()
    job.groups = {**job.groups, "twin": (0, 1, 2, 3)}
    for rank in job.programs:
        job.programs[rank] = [Op("all_reduce", 9, group="twin"), *job.programs[rank]]
    job.stuck_devices = {2: 14}
    job._play()
    found = judged(job, {rank: {"id": state(rank, 4, runs=rank != 2)} for rank in range(4)})
    assert found is not None
    assert found.verdict.certainty == "undetermined"
