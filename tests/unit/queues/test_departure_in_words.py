"""The sentences on a departure from the order of the others."""

from __future__ import annotations

import pytest

from hangwatch.queues.departure import Departure
from hangwatch.queues.departures import finding
from hangwatch.queues.model import Call, Communicator
from hangwatch.queues.readings import Kind


@pytest.mark.parametrize(
    ("agreeing", "said"), [(1, "the next 1 call is as on the others"), (4, "the next 4 calls are as on the others")]
)
def test_calls_that_agree_again_are_counted(agreeing: int, said: str) -> None:
    group = Communicator("0", (0, 1, 2))
    departure = Departure(
        Kind.SKIPPED,
        group,
        (1,),
        5,
        Call("barrier", ""),
        Call("broadcast", ""),
        count=3,
        agreeing=agreeing,
        majority=True,
    )
    assert any(said in sentence for sentence in finding(departure, (0, 2)).evidence)
