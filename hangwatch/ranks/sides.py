"""Ranks grouped by what is alike on them, and a few out of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

Value = TypeVar("Value")

ASKED = 64  # ranks whose records are read where those of all would take long: enough to know what most of them do


def by_value(values: Mapping[int, Value]) -> dict[Value, list[int]]:
    """The ranks that have each value; values and ranks in the order of the mapping."""
    found: dict[Value, list[int]] = {}
    for rank, value in values.items():
        found.setdefault(value, []).append(rank)
    return found


def spread(ranks: Iterable[int], most: int = ASKED) -> list[int]:
    """At most `most` of the ranks, evenly spread; all of them in a small job."""
    known = list(ranks)
    return known[:: max(-(-len(known) // most), 1)]


def odd_of(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The fewer ranks of two sides; all of them where both sides are equally many."""
    return tuple(sorted((*one, *other))) if len(one) == len(other) else min(one, other, key=len)
