"""Two epochs in one order, where the sampler should have been told the epoch."""

from __future__ import annotations

from typing import Any

import pytest

from hangwatch.health import warnings
from tests.unit.health.readings import distributed, reading

REPEATED = {"sampler_indices_hash": "aa", "previous_indices_hash": "aa", "drawn_per_epoch": (9, 9), "epoch": 2}


def test_the_same_order_again() -> None:
    (found,) = warnings([reading(rank, distributed(rank, **REPEATED)) for rank in range(2)])
    assert (found.kind, found.ranks) == ("set-epoch-missing", (0, 1))


@pytest.mark.parametrize(
    "change",
    [
        {"previous_indices_hash": "bb"},
        {"sampler_indices_hash": "", "previous_indices_hash": ""},
        {"shuffle": False},
        {"drawn_per_epoch": (1, 1)},
        {"sampler_length": 8},
        {"sampler_replicas": None},
        {"training": False},
    ],
)
def test_the_same_order_may_be_wanted(change: dict[str, Any]) -> None:
    assert warnings([reading(rank, distributed(rank, **(REPEATED | change))) for rank in range(2)]) == ()
