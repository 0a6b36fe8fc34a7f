"""Ranks that left the order of calls which the others of their group kept, by the queues of live ranks."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.call_site import path
from hangwatch.facts.calls.inner_loops import loop_of_another_turn, tried_again
from hangwatch.facts.calls.queues import assessed, departure_of
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import first_uneven
from hangwatch.model import Bypass
from hangwatch.queues.departure import Departure
from hangwatch.queues.readings import Kind
from hangwatch.rules.by_queues import by_queues
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.rank_local_decision.repeated import after_an_error
from hangwatch.rules.step.rank_zero_only_collective.out_of_order import behind_a_rank_check
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
    return replace(found, fix=equal_turns(loop)) if loop is not None else found


def _tried_again(case: Case, departure: Departure) -> tuple[Bypass, ...]:
    """The clauses after which a loop has another try, where ranks made again what all call in the body of that try."""
    if departure.kind is not Kind.EXTRA or not departure.repeated:
        return ()
    return tried_again(case, path(departure.own.frames))
