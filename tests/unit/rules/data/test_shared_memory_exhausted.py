"""`shared-memory-exhausted`: /dev/shm is full."""

from __future__ import annotations

import pytest

from tests.unit.job import FETCHING, blamed, judge, told, worker
from tests.unit.rules.data.loaders import WAITING, failing, fed

GIB = 1 << 30


@pytest.mark.parametrize(
    "message",
    [
        "unable to allocate shared memory(shm) for file </torch_8_1_0>: No space left on device (28)",
        (
            "Caught RuntimeError in DataLoader worker process 0.\nTraceback ...\n"
            "RuntimeError: unable to write to file </torch_12_3>: No space left on device (28)"
        ),
        (
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out"
            " of shared memory. Please try to raise your shared memory limit."
        ),
    ],
)
def test_no_room_in_shared_memory(message: str) -> None:
    judgement = judge(failing(0, message), node={"shm_total": GIB // 16, "shm_free": GIB // 4096})
    assert told(judgement)[0::2] == ("shared-memory-exhausted", "failed")
    assert blamed(judgement) in ([(0, 100, "rank")], [(0, 7, "loader-worker")])
    assert "which has 64 MiB in all" in judgement.verdict.summary


def test_a_full_one_and_a_worker_that_does_not_get_on() -> None:
    judgement = judge(fed(0, worker(0, FETCHING)), WAITING, node={"shm_total": GIB, "shm_free": 4096})
    assert told(judgement)[:2] == ("shared-memory-exhausted", "likely")


def test_a_full_disk_is_something_else() -> None:
    judgement = judge(failing(0, "[Errno 28] No space left on device: '/data/log'"))
    assert judgement.verdict.cause == "exception-on-one-rank"
