"""Ranks that wait for each other in a circle, over several groups or by point-to-point calls."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.device_queues import named, place_in
from hangwatch.facts.standstill import Call, all_hosts_wait, crossed, front
from hangwatch.model import Certainty
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


def groups_in_opposite_order(case: Case) -> Finding | None:
    """Groups that the ranks use in different orders: each device waits in one of them for a device in another."""
    circle = crossed(case)
    if len(circle) < 2 or not all_hosts_wait(case):
        return None
    sides = [(call, _first_in(case, call)) for call in circle]
    guilty = sorted({rank for _, ranks in sides for rank in ranks})
    told = [f"{case.name(ranks)} first {named(case, call, ranks[0])}" for call, ranks in sides]
    return Finding(
        "group-order-cycle",
        Certainty.LIKELY,
        f"{case.name(guilty, capital=True)} use {words.plural(len(circle), 'group')} in different orders:"
        f" {words.listed(told)}. Each call was enqueued by all its members, and their devices wait for each other.",
        culprits=tuple(case.ranks[rank].culprit(place_in(case, call, rank)) for call, ranks in sides for rank in ranks),
        victims=tuple(rank for rank in case.blocked if rank not in guilty),
        step=case.furthest_step(guilty),
        evidence=tuple(f"enqueued first, and not complete: {each}" for each in told),
        awaited=tuple(case.ranks),
    )


def _first_in(case: Case, call: Call) -> list[int]:
    return [
        rank
        for rank in call[0].members
        if rank in case.ranks and (own := front(case, rank)) is not None and own[0] is call[0] and own[1] == call[1]
    ]
