"""A process that sleeps, or waits with a timeout: for how long it will."""

from __future__ import annotations

from hangwatch import words
from hangwatch.model import ProcessFacts

NAP_S = 2.0  # a shorter sleep is one of many, between two looks at what is awaited
A_TURN_S = 30.0  # the longest sleep, or wait with a timeout, that is one of many between two tries
GIVES_UP_S = 600.0  # a wait with no longer a timeout is meant to end by itself
STORES_OWN_S = 300.0  # torch's default for a store, which no program has chosen


def sleeps_long(process: ProcessFacts | None) -> bool:
    """It is in a sleep of its own, and not between two looks at what is awaited."""
    return _left_s(process) > NAP_S


def how_it_sleeps(process: ProcessFacts | None) -> str:
    """`it sleeps, for another 12 s`, or without the time where that is short or not known."""
    return f"it sleeps, for another {words.duration(_left_s(process))}" if sleeps_long(process) else "it sleeps"


def waits_at_most(process: ProcessFacts | None) -> float:
    """In how many seconds, at most, its one wait gives up by itself; 0 where it has no such timeout."""
    left_s = (process.times_out_s or 0.0) if process is not None else 0.0
    return left_s if A_TURN_S < left_s <= GIVES_UP_S and left_s != STORES_OWN_S else 0.0


def _left_s(process: ProcessFacts | None) -> float:
    return (process.sleeps_s or 0.0) if process is not None else 0.0
