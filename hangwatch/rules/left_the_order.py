"""Ranks that left the order of calls which the others of their group kept, by the queues of live ranks."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.call_site import path
from hangwatch.facts.calls.inner_loops import loop_of_another_turn, tried_again
from hangwatch.facts.calls.queues import assessed, departure_of
from hangwatch.facts.calls.skip_paths import condition
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import first_uneven
from hangwatch.model import Bypass
from hangwatch.queues.departure import Departure
from hangwatch.queues.readings import Kind
from hangwatch.rules.by_queues import by_queues
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.rank_local_decision.repeated import after_an_error
from hangwatch.rules.step.rank_zero_only_collective.out_of_order import behind_a_rank_check, by_its_rank
from hangwatch.rules.step.rank_zero_only_collective.witnesses import call_on_every_rank, condition_of
from hangwatch.rules.turns import equal_turns


def left_the_order(case: Case) -> Finding | None:
    """Ranks left out calls, added or moved some, in the order of calls that the others of a group kept."""
    queued = assessed(case).found if case.in_trouble else None
    if queued is None or queued.departure is None:
        return None
    if queued.cause == "uneven-steps" and first_uneven(case) is None and all(view.loader for view in case):
        return None  # in no epoch did the ranks draw different numbers of batches
    known = departure_of(case) is not None
    found = by_queues(case) if known else behind_a_rank_check(case, queued.departure)
    if found is None:
        return None
    found = replace(found, status=case.failed_status)
    if caught := _tried_again(case, queued.departure) if known else ():
        return after_an_error(found, caught)
    loop = loop_of_another_turn(case) if known else None
    if loop is not None:
        return replace(found, fix=equal_turns(loop))
    return _behind_its_condition(case, found, queued.departure) if known else found


def _behind_its_condition(case: Case, found: Finding, departure: Departure) -> Finding:
    """`found` with the condition by which these ranks came to a call that no other rank makes, by the source."""
    if departure.kind is not Kind.EXTRA or departure.repeated:
        return found
    way = condition_of(case, departure.ranks[0], path(departure.own.frames))
    if way is None:
        return found
    told = replace(
        found, fix=call_on_every_rank(way), details=(*found.details, f"{condition(way)} leads to that call.")
    )
    return by_its_rank(told) if way.asks == "rank" else told


def _tried_again(case: Case, departure: Departure) -> tuple[Bypass, ...]:
    """The clauses after which a loop has another try, where ranks made again what all call in the body of that try."""
    if departure.kind is not Kind.EXTRA or not departure.repeated:
        return ()
    return tried_again(case, path(departure.own.frames))
