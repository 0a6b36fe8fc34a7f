"""A process that sleeps: for how long it will."""

from __future__ import annotations

from hangwatch import words
from hangwatch.model import ProcessFacts

NAP_S = 2.0  # a shorter sleep is one of many, between two looks at what is awaited


def sleeps_long(process: ProcessFacts | None) -> bool:
    """It is in a sleep of its own, and not between two looks at what is awaited."""
    return _left_s(process) > NAP_S


def how_it_sleeps(process: ProcessFacts | None) -> str:
    """`it sleeps, for another 12 s`, or without the time where that is short or not known."""
    return f"it sleeps, for another {words.duration(_left_s(process))}" if sleeps_long(process) else "it sleeps"


def _left_s(process: ProcessFacts | None) -> float:
    return (process.sleeps_s or 0.0) if process is not None else 0.0
