"""Ranks that wait for each other in a circle, over several groups or by point-to-point calls."""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.facts.call_site import path, site
from hangwatch.facts.calls.skip_paths import passed_at, past_lines
from hangwatch.facts.case import Case
from hangwatch.model import Bypass, Certainty
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
    odd = astray if few else set()
    told = circular(case, "group-order-cycle", entries, odd)
    ways = _past_an_earlier_call(case, entries)
    return _or_left_out(told, ways) if ways and not odd else told


def _past_an_earlier_call(case: Case, entries: list[Blocked]) -> tuple[Bypass, ...]:
    """How a rank can have gone by such a call by something of its own, where one line makes the calls of all groups.

    There the groups come in the order of the data. A call that one rank left out leads to the same circle.
    """
    places = {site(entry.call) if entry.call is not None else None for entry in entries}
    place = places.pop() if len(places) == 1 else None
    ways = past_lines(case, place.lines) if place is not None else ()
    return tuple(way for way in ways if way.asks in ("value", "check"))


def _or_left_out(told: Finding, ways: tuple[Bypass, ...]) -> Finding:
    """Which of the two it was, and on which rank, nothing shows."""
    at = words.either(f"{words.place(way.where)} (`{way.text}`)" for way in ways[: words.SHOWN])
    return replace(
        told,
        certainty=Certainty.UNDETERMINED,
        summary=f"{told.summary.removesuffix('.')}; one of them left out an earlier call, as it can at {at}, or they"
        " use the groups in different orders.",
        fix=f"let all members of a group decide alike whether to make its call ({words.place(ways[0].where)}): reduce"
        " or send the condition first; and use the groups in the same order on every rank",
        evidence=(*told.evidence, passed_at(ways, "that call")),
    )
