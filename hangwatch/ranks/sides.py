"""Ranks grouped by what is alike on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")


def by_value(values: Mapping[int, Value]) -> dict[Value, list[int]]:
    """The ranks that have each value; values and ranks in the order of the mapping."""
    found: dict[Value, list[int]] = {}
    for rank, value in values.items():
        found.setdefault(value, []).append(rank)
    return found
