"""Coalesced calls in orders that are compared: they share one number, and are one call."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from .model import Lane
from .readings import Kind, Reading, are_turns


def is_turn(reading: Reading, row: array[int], place: int, numbers: Sequence[int]) -> bool:
    """Whether the added calls are further turns of a loop: those that were coalesced are one call."""
    if reading.kind is not Kind.EXTRA or reading.run or len(set(numbers)) < 2:
        return False
    return are_turns(row[place : place + reading.count].tolist(), row[:place].tolist())


def is_bundled(reading: Reading, lane: Lane, at: int, theirs: Lane, there: int) -> bool:
    """Whether the calls were changed among coalesced ones, so that those behind still have the others' numbers."""
    if len(lane.places(lane.numbers[at])) == len(theirs.places(theirs.numbers[there])) == 1:
        return False
    at += reading.count if reading.kind is Kind.EXTRA else 0
    there += reading.count if reading.kind is Kind.SKIPPED else 0
    return at < len(lane) and there < len(theirs) and lane.numbers[at] == theirs.numbers[there]
