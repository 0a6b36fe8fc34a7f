"""A process that sleeps: for how long it will, and whether that is worth waiting for."""

from __future__ import annotations

from hangwatch import words
from hangwatch.model import ProcessFacts, RankEvidence

NAP_S = 2.0  # a shorter sleep is one of many, between two looks at what is awaited
SLEEPING = 2.0  # times its patience that a rank may stand still while the end of a sleep is near


def wakes_soon(process: ProcessFacts, owner: RankEvidence) -> bool:
    """`process`, the rank `owner` or one of its workers, is in a sleep that ends before long, as between two attempts.

    A rank that stands still for longer than that has slept more than once, and what it sleeps for does not come.
    """
    sleeps_s = process.sleeps_s or 0.0
    return NAP_S < sleeps_s <= owner.patience_s and owner.still_s < SLEEPING * owner.patience_s


def sleeps_long(process: ProcessFacts | None) -> bool:
    """It is in a sleep of its own, and not between two looks at what is awaited."""
    return process is not None and (process.sleeps_s or 0.0) > NAP_S


def how_it_sleeps(process: ProcessFacts | None) -> str:
    """`it sleeps, for another 12 s`, or without the time where that is short or not known."""
    if process is None or not sleeps_long(process):
        return "it sleeps"
    return f"it sleeps, for another {words.duration(process.sleeps_s or 0.0)}"
