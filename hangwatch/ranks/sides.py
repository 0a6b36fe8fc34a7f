"""Ranks grouped by what is alike on them, a few out of many, and where two of them part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def fewer_of(one: Sequence[int], other: Sequence[int]) -> Sequence[int]:
    """The fewer ranks of two sides; none where both sides are equally many."""
    return min(one, other, key=len) if len(one) != len(other) else ()


def apart_at(one: Iterable[object], other: Iterable[object]) -> int | None:
    """The first place at which two sequences differ; None where at most one of them goes on further."""
    return next((at for at, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs), None)


def odd_of(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The fewer ranks of two sides; all of them where both sides are equally many."""
    return tuple(sorted((*one, *other))) if len(one) == len(other) else min(one, other, key=len)
