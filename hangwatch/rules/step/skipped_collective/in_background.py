"""A call that threads in the background make, such as those of a saver, and that ranks have made less often."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.call_site import Site, site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.case import Case
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.issuers import in_background
from hangwatch.ranks.ledger import Group
from hangwatch.ranks.sides import spread
from hangwatch.rules.finding import Finding


@dataclass(frozen=True)
class _Fewer:
    """`waiting` stand in call `number` of a group that only background threads use, and `past` have one call fewer."""

    group: Group
    number: int
    past: tuple[int, ...]
    waiting: tuple[int, ...]


def left_out_in_the_background(case: Case) -> Finding | None:
    """Ranks wait for those whose threads wait in one more call from the same line, after as many steps of all."""
    found = _fewer(case)
    if found is None:
        return None
    first, there = case.blocked[found.waiting[0]], case.blocked[found.past[0]].activity.called
    call = f"{first.op or 'call'}{words.at(first.where)}"
    who, made = case.name(found.past), words.plural(found.number - 1, "such call")
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{words.capital(who)} left out one {call}, which a thread in the background makes:"
        f" {case.wait_words(found.waiting)} in number {found.number} of them, and {who}"
        f" {words.verb(len(found.past), 'waits', 'wait')} for them in {there}{words.at(case.usual_place(found.past))}.",
        culprits=case.culprits(found.past),
        victims=found.waiting,
        step=case.furthest_step(found.past),
        evidence=(
            f"{who} {words.verb(len(found.past), 'has', 'have')} made {made}, and {case.name(found.waiting)} one more",
            f"all of them are in the same step, {case.ranks[found.past[0]].step.step}",
        ),
        witnesses=(
            Witness(Kind.MAJORITY, f"most ranks have made that call: {case.name(found.waiting)}"),
            Witness(Kind.HABIT, f"before, {case.name(found.past)} made that call as often as the others"),
        ),
        awaited=found.past,
    )


def _fewer(case: Case) -> _Fewer | None:
    """The first such call, of those for which ranks wait."""
    seen = set[tuple[str, int]]()
    for entry in case.blocked.values():
        group, number, need = entry.group, entry.seq, entry.need
        if group is None or not number or number < 2 or need is None or entry.to_a_peer:
            continue
        if (group.name, number) in seen or 2 * len(need.absent) >= len(group.members):
            continue
        seen.add((group.name, number))
        absent = frozenset(need.absent)
        found = _Fewer(group, number, need.absent, tuple(rank for rank in group.members if rank not in absent))
        if _is_that(case, found):
            return found
    return None


def _is_that(case: Case, found: _Fewer) -> bool:
    """Both sides stand and need each other in one counted step, and call there from one place, in threads.

    Those with one call less are in a call that is new to them, behind all of those.
    """
    both = (*found.past, *found.waiting)
    stand = all(rank in case.blocked for rank in both)
    steps = {view.step.step for view in case.views(both)}
    waiting = frozenset(found.waiting)
    if any(view.threads_that_may_communicate() for view in case.views(found.past)):
        return False  # a thread of its own may be on its way to that call
    if not stand or len(steps) > 1 or None in steps:
        return False
    if not all(_stands_there(case.blocked[rank], found) for rank in found.waiting):
        return False
    if any(sites_of(case).regular(rank) is not False for rank in found.past):
        return False
    needs = [case.blocked[rank].need for rank in found.past]
    kept = all(need is not None and not waiting.isdisjoint(need.absent) for need in needs)
    places = _places(case, found)
    return kept and len(places) == 1 and None not in places


def _stands_there(entry: Blocked, found: _Fewer) -> bool:
    return entry.group is found.group and entry.seq == found.number


def _places(case: Case, found: _Fewer) -> set[Site | None]:
    """From where the calls of that group came; None among them for a call of the thread that trains."""
    places = set[Site | None]()
    for rank in (*spread(found.past), *spread(found.waiting)):
        calls = case.ledger.calls_in(rank, found.group.name)
        threads = {(call.group, call.seq) for call in in_background(case.ledger, rank, found.group.name)}
        places |= {site(call) if (call.group, call.seq) in threads else None for call in calls}
    return places
