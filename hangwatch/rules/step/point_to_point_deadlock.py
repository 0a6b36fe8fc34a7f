"""A circle of waits with a send or receive in it."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.rules.circular import circular
from hangwatch.rules.finding import Finding


def point_to_point_deadlock(case: Case) -> Finding | None:
    """A circle of waits with a send or receive in it, or a receive whose sender waits elsewhere for good."""
    circle = case.graph.cycle(case.deadlocked)
    entries = [case.blocked[rank] for rank in circle]
    if not any(entry.to_a_peer for entry in entries):
        return None
    return circular(case, "point-to-point-deadlock", entries)
