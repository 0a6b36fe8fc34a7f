"""Lengths that the source of a user's `__len__` says, without running it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hangwatch_agent.rank.hooks.lengths import length
from hangwatch_agent.rank.hooks.user_lengths import promised


class Has:
    """What the examples below have."""

    def __init__(self) -> None:
        self.indices = list(range(10))
        self.total, self.replicas = 103, 4
        self.ran = 0


class Indices(Has):
    def __len__(self) -> int:
        """As many as there are."""
        return len(self.indices)


class Share(Has):
    def __len__(self) -> int:
        return int(math.ceil(self.total / self.replicas))  # noqa: RUF046 - as people write it


class Floor(Has):
    def __len__(self) -> int:
        return (self.total - 1) // self.replicas + len(self.indices)


class Nested(Has):
    def __init__(self) -> None:
        super().__init__()
        self.data = Indices()

    def __len__(self) -> int:
        return len(self.data)


class Counts(Has):
    def __len__(self) -> int:
        self.ran += 1
        return 5


class Property(Has):
    def __len__(self) -> int:
        return self.size

    @property
    def size(self) -> int:
        self.ran += 1
        return 5


class Endless(Has):
    def __init__(self) -> None:
        super().__init__()
        self.data = self

    def __len__(self) -> int:
        return len(self.data)


class Strange(Has):
    def __len__(self) -> int:
        return len([each for each in self.indices if each])


@pytest.mark.parametrize(("kind", "known"), [(Indices, 10), (Share, 26), (Floor, 35), (Nested, 10)])
def test_a_length_that_the_source_says(kind: type[Any], known: int) -> None:
    thing = kind()
    assert promised(thing, length) == known == len(thing)
    assert length(thing) == known


@pytest.mark.parametrize("kind", [Counts, Property, Endless, Strange, Has])
def test_what_it_does_not_say_is_not_run_either(kind: type[Any]) -> None:
    thing = kind()
    assert length(thing) is None
    assert thing.ran == 0
