"""Ranks that wait for each other in a circle, over several groups or by point-to-point calls."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.rules.circular import circular
from hangwatch.rules.finding import Finding


def group_order_cycle(case: Case) -> Finding | None:
    """A circle of waits over different groups."""
    circle = case.graph.cycle(case.deadlocked)
    entries = [case.blocked[rank] for rank in circle]
    groups = {entry.group.key for entry in entries if entry.group is not None}
    if len(groups) < 2:
        return None
    return circular(case, "group-order-cycle", entries)
