"""Samplers that give all data to every rank, and those of which it is not known."""

from __future__ import annotations

import pytest

from hangwatch.health import warnings
from tests.unit.health.readings import distributed, kinds, loader, reading


def test_a_sampler_that_knows_the_ranks_and_gives_all_to_each() -> None:
    (found,) = warnings([reading(rank, distributed(rank, sampler="Balanced", sampler_length=800)) for rank in range(2)])
    assert (found.kind, found.ranks) == ("sampler-full-copy", (0, 1))
    assert "draws all 800 samples of Images: Balanced does not divide them among the 2 ranks" in found.summary


@pytest.mark.parametrize(
    ("sampler", "orders", "expected"),
    [
        ("Balanced", ("aa", "aa"), ["sampler-full-copy"]),
        ("Balanced", ("aa", "bb"), []),
        ("Balanced", ("", ""), []),
        ("SequentialSampler", ("aa", "aa"), []),  # each rank may have a data set of its own
    ],
)
def test_a_sampler_that_knows_of_no_ranks(sampler: str, orders: tuple[str, str], expected: list[str]) -> None:
    loaders = [loader(sampler=sampler, sampler_length=800, sampler_indices_hash=order) for order in orders]
    assert kinds(warnings([reading(rank, each) for rank, each in enumerate(loaders)])) == expected
