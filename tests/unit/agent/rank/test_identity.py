from __future__ import annotations

import os
import time

import pytest

from hangwatch.model import Identity
from hangwatch.wire import codec
from hangwatch_agent.rank import identity


def test_a_rank_of_torchrun() -> None:
    environment = {
        "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "abc", "MASTER_ADDR": "a",
        "HOME": "/root",
    }  # fmt: skip
    found = codec.decode(Identity, identity.describe(environment))
    assert (found.rank, found.world_size, found.local_rank, found.launcher) == (3, 8, 1, "torchrun")
    assert found.job == "torchrun-abc"
    assert found.pid == os.getpid()
    assert "HOME" not in found.environment
    assert found.environment["MASTER_ADDR"] == "a"


def test_a_process_that_is_no_rank_yet() -> None:
    found = codec.decode(Identity, identity.describe({}))
    assert (found.rank, found.world_size, found.launcher) == (None, None, "plain")


def test_below_hangwatch_run_the_job_is_the_runs() -> None:
    assert identity.describe({"HANGWATCH_RUN_ID": "run-7"})["job"] == "run-7"


def test_the_start_is_in_the_past() -> None:
    ticks = identity.start_ticks()
    assert ticks > 0
    assert time.time() - 86400 < identity.started_at(ticks) <= time.time()
    assert abs(identity.started_at(0) - time.time()) < 5


@pytest.mark.parametrize(
    ("given", "port"),
    [
        ("tcp://10.0.0.1:29500", "29500"),
        ("tcp://10.0.0.1:29501?rank=1&world_size=2", "29501"),
        ("tcp://10.0.0.1:29502/", "29502"),
        ("env://", None),
        ("file:///scratch/store", None),
        ("tcp://nowhere", None),
        (None, None),
        (7, None),
    ],
)
def test_the_address_that_init_process_group_was_given(given: object, port: str | None) -> None:
    expected = {} if port is None else {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": port}
    assert identity.rendezvous(given) == expected
