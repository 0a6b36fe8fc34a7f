"""The order of calls parts between two halves of the ranks: the source tells which of them makes a call of its own."""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.facts.call_site import path
from hangwatch.facts.calls.skip_paths import asked_for_the_rank, rank_check
from hangwatch.facts.case import Case
from hangwatch.model import Certainty
from hangwatch.queues.departure import Departure
from hangwatch.queues.names import apart
from hangwatch.rules.finding import Finding


def behind_a_rank_check(case: Case, departure: Departure) -> Finding | None:
    """The source tells which of two halves left the order: a condition on the rank leads to the call of one of them."""
    checks = [(who, call, rank_check(case, path(call.frames))) for who, call in departure.sides]
    checked = [(who, call, guard) for who, call, guard in checks if guard is not None]
    if len(checked) != 1:
        return None
    ((who, call, guard),) = checked
    _, usual = next(side for side in departure.sides if side[0] != who)
    own_line, usual_line = apart(call, usual)
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,
        f"{case.name(who, capital=True)} alone called {call.op}{words.at(own_line)}, where the others call"
        f" {usual.op}{words.at(usual_line)}: every later call is mispaired.",
        culprits=case.culprits(who, guard.where),
        step=case.furthest_step(who),
        evidence=(asked_for_the_rank(guard),),
    )


def by_its_rank(found: Finding) -> Finding:
    """A finding of calls that left the order, to which a check of the rank leads."""
    return replace(found, cause="rank-zero-only-collective")
