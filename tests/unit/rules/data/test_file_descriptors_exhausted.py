"""`file-descriptors-exhausted`: no file descriptors are left."""

from __future__ import annotations

import pytest

from tests.unit.job import FEEDER, FETCHING, IDLE, judge, told, worker
from tests.unit.rules.data.loaders import WAITING, failing, fed


@pytest.mark.parametrize("message", ["[Errno 24] Too many open files", "received 0 items of ancdata"])
def test_too_many_open_files(message: str) -> None:
    judgement = judge(failing(0, message), WAITING)
    assert told(judgement)[:2] == ("file-descriptors-exhausted", "proven")


def test_near_the_limit() -> None:
    full = fed(0, worker(0, FETCHING, descriptors=1020, descriptor_limit=1024))
    judgement = judge(full, WAITING)
    assert told(judgement)[:2] == ("file-descriptors-exhausted", "likely")
    assert "pid 200 of rank 0 has 1,020 of 1,024 descriptors open" in judgement.verdict.evidence


def test_a_batch_that_was_lost_for_want_of_descriptors() -> None:
    """The feeder thread of a worker prints its error and goes on; the thread that hands descriptors on ends."""
    idle = worker(0, IDLE, descriptors=18, descriptor_limit=128)
    lame = type(idle)(**{**vars(idle), "stacks": (*idle.stacks[:1], FEEDER)})
    judgement = judge(fed(0, lame), WAITING)
    assert told(judgement) == ("file-descriptors-exhausted", "likely", "hung")
    assert "a batch was lost on its way" in judgement.verdict.summary


def test_a_batch_that_was_lost_for_an_unknown_reason() -> None:
    judgement = judge(fed(0, worker(0, IDLE, descriptors=18, descriptor_limit=1 << 20)), WAITING)
    assert judgement.verdict.cause == "undetermined"
