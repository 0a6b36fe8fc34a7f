"""Ranks that wait for each other in a circle, over several groups or by point-to-point calls."""

from __future__ import annotations

from hangwatch.facts.call_site import path
from hangwatch.facts.case import Case
from hangwatch.model import Certainty
from hangwatch.proof.waits import Blocked
from hangwatch.rules.by_hash import with_its_hash
from hangwatch.rules.by_queues import by_queues
from hangwatch.rules.circular import circular
from hangwatch.rules.finding import Finding


def group_order_cycle(case: Case) -> Finding | None:
    """A circle of waits over different groups. Where the order of calls tells which rank left it, that one is named."""
    circle = case.graph.cycle(case.deadlocked)
    entries = [case.blocked[rank] for rank in circle]
    groups = {entry.group.key for entry in entries if entry.group is not None}
    if len(groups) < 2:
        return None
    ways = {entry.rank: path(entry.call.frames) for entry in entries if entry.call is not None}
    return with_its_hash(case, _in_a_circle(case, entries), "group-order-cycle", ways)


def _in_a_circle(case: Case, entries: list[Blocked]) -> Finding:
    found, circle = by_queues(case), {entry.rank for entry in entries}
    named = {*found.blamed} if found is not None else set()
    if found is not None and found.certainty is not Certainty.UNDETERMINED and named and not named.issuperset(circle):
        return found
    astray = named & circle
    few = len(circle) == 2 or 2 * len(astray) < len(circle)  # of two halves neither is known to be the odd one
    return circular(case, "group-order-cycle", entries, astray if few else set())
