"""A call that threads in the background make, such as those of a saver, and that ranks have made less often."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.call_site import path, site
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import passed_at, past_lines, the_only
from hangwatch.facts.case import Case
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Collective
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.issuers import in_background
from hangwatch.ranks.ledger import Group
from hangwatch.ranks.sides import spread
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


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
    issued = case.ledger.call(found.waiting[0], found.group.name, found.number)
    where = (user_frame(issued.frames) if issued is not None else None) or first.where
    call = f"{first.op or 'call'}{words.at(where)} in group {found.group.name}"
    who, made = case.name(found.past), f"{words.plural(found.number - 1, 'call')} in group {found.group.name}"
    ways = past_lines(case, path(case.ranks[found.waiting[0]].evidence.main_stack))
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"{words.capital(who)} left out one {call}, which a thread in the background makes:"
        f" {case.wait_words(found.waiting)} in call {found.number} of that group, and"
        f" {case.wait_words(found.past)} for them in {there}{words.at(case.usual_place(found.past))}.",
        culprits=case.culprits(found.past, the_only(ways)),
        victims=found.waiting,
        step=case.furthest_step(found.past),
        evidence=(
            f"{who} {words.verb(len(found.past), 'has', 'have')} made {made}, and {case.name(found.waiting)} one more",
            _which_step(case, found),
            *((passed_at(ways, "what begins it"),) if ways else ()),
        ),
        witnesses=(
            Witness(Kind.MAJORITY, f"most ranks have made that call: {case.name(found.waiting)}"),
            Witness(Kind.HABIT, f"before, {case.name(found.past)} made that call as often as the others"),
        ),
    )


def _which_step(case: Case, found: _Fewer) -> str:
    if _steps_ahead(case, found):
        return f"{case.say(found.past, 'is', 'are')} in a later step"
    return f"all of them are in the same step, {case.ranks[found.past[0]].step.step}"


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
    """Both sides stand and need each other, each in one counted step, and call there from one place, in threads.

    Those with one call less are in a later step, or in a call that is new to them, behind all of those.
    """
    both = (*found.past, *found.waiting)
    stand = bool(found.past and found.waiting) and all(rank in case.blocked for rank in both)
    steps = [{view.step.step for view in case.views(ranks)} for ranks in (found.past, found.waiting)]
    waiting = frozenset(found.waiting)
    if any(view.threads_that_may_communicate() for view in case.views(found.past)):
        return False  # a thread of its own may be on its way to that call
    if not stand or any(len(each) > 1 or None in each for each in steps):
        return False
    if not all(_stands_there(case.blocked[rank], found) for rank in found.waiting):
        return False
    ahead = _steps_ahead(case, found)
    regular = not ahead and any(sites_of(case).regular(rank) is not False for rank in found.past)
    if ahead < 0 or (regular and not _was_due_long_ago(case, found)):
        return False  # they may come to it yet, behind a call of every step
    needs = [case.blocked[rank].need for rank in found.past]
    kept = all(need is not None and not waiting.isdisjoint(need.absent) for need in needs)
    return kept and _was_made_before(case, found)


def _steps_ahead(case: Case, found: _Fewer) -> int:
    here, there = (case.ranks[ranks[0]].step.step or 0 for ranks in (found.past, found.waiting))
    return here - there


def _was_due_long_ago(case: Case, found: _Fewer) -> bool:
    """The others issued it more steps ago than any call of that group came later here than there."""
    made = {rank: _steps_of(case, rank, found.group.name) for rank in (found.past[0], found.waiting[0])}
    mine, theirs = made[found.past[0]], made[found.waiting[0]]
    due, now = theirs.get(found.number), case.ranks[found.past[0]].step.step
    common = [abs(mine[number] - theirs[number]) for number in mine.keys() & theirs.keys()]
    return due is not None and now is not None and bool(common) and now > due + max(common)


def _steps_of(case: Case, rank: int, group: str) -> dict[int, int]:
    """The step in which each recorded call of that group was issued, by its number."""
    steps = {call.seq: case.ledger.step_of(rank, call) for call in case.ledger.calls_in(rank, group)}
    return {number: step for number, step in steps.items() if step is not None}


def _stands_there(entry: Blocked, found: _Fewer) -> bool:
    return entry.group is found.group and entry.seq == found.number


def _was_made_before(case: Case, found: _Fewer) -> bool:
    """All calls of that group came from threads in the background, and all ranks made such a one before."""
    places: set[Hashable] = set()
    for rank in (*spread(found.waiting), *spread(found.past)):
        calls = case.ledger.calls_in(rank, found.group.name)
        threads = {(call.group, call.seq) for call in in_background(case.ledger, rank, found.group.name)}
        if any((call.group, call.seq) not in threads for call in calls):
            return False
        made = {_place(call) for call in calls if call.seq < found.number}
        places |= {_place(call) for call in calls if call.seq == found.number}
        if None in places or not places <= made:
            return False
    return len(places) == 1


def _place(call: Collective) -> Hashable:
    """The user's lines that led to a call, or where a thread of a package made it, all of its frames."""
    return site(call) or tuple(frame.source_line for frame in call.frames) or None
