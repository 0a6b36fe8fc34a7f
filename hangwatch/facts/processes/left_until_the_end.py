"""Ranks that ended their program as they should, ahead of the steps in which the others failed in a call.

Such a rank has not left its loop early, nor destroyed its group too soon. Either it went through many turns without the
call, or the calls of one number come in unlike steps of the ranks: by a clock, say, and not by a count of steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from hangwatch.facts.call_site import Site, site
from hangwatch.facts.calls.call_sites import HABIT
from hangwatch.facts.case import Case, once
from hangwatch.facts.processes.ended_ahead import are_ahead
from hangwatch.facts.processes.process_end import ended_before_others
from hangwatch.model import Collective
from hangwatch.ranks.ledger import is_numbered


@dataclass(frozen=True)
class LeftUntilTheEnd:
    """`ranks` never made `call`, which `caller`, one of the `failed`, made from a place where they had called, too.

    Of the first of them `since` is the step of its last call there, `end` that in which it ended, `usual` the most
    steps from one of its calls there to the next, and `times` how often it called from there in one step.
    """

    ranks: tuple[int, ...]
    failed: tuple[int, ...]
    call: Collective
    caller: int
    place: Site
    since: int
    end: int
    usual: int
    times: int


@dataclass(frozen=True)
class UnlikeSteps:
    """`call`, which the `failed` made from `place`, and the `ended` did not: they had made all their steps.

    `steps` are those in which the ranks made the call of the number before it, from the same place.
    """

    ended: tuple[int, ...]
    failed: tuple[int, ...]
    call: Collective
    caller: int
    place: Site
    steps: dict[int, int]
    times: int


@once
def in_unlike_steps(case: Case) -> UnlikeSteps | None:
    """None where the calls of one number come in one step, or nearly so: a rank may be in the next one already."""
    ended, failed = ended_before_others(case) or ([], [])
    if not ended or len(ended) + len(failed) < case.size or not are_ahead(case, ended, failed):
        return None
    lasts = {rank: _last_numbered(case, rank) for rank in failed}
    first = lasts[failed[0]]
    place = site(first) if first is not None else None
    if first is None or place is None or any(each is None or each.seq != first.seq for each in lasts.values()):
        return None
    before = {rank: _of_number(case, rank, first.group, first.seq - 1) for rank in (*ended, *failed)}
    if any(call is None or call.step is None or site(call) != place for call in before.values()):
        return None
    steps = {rank: call.step for rank, call in before.items() if call is not None and call.step is not None}
    made = Counter(call.step for call in case.ranks[failed[0]].evidence.board_calls if site(call) == place)
    unlike = max(steps.values()) - min(steps.values()) > 1
    times = max(made.values())
    return UnlikeSteps((*ended,), (*failed,), first, failed[0], place, steps, times) if unlike else None


def _last_numbered(case: Case, rank: int) -> Collective | None:
    return next((call for call in reversed(case.ranks[rank].evidence.board_calls) if is_numbered(call)), None)


def _of_number(case: Case, rank: int, group: str, number: int) -> Collective | None:
    """The call of that number, if `rank` has it on record."""
    calls = case.ranks[rank].evidence.board_calls
    return next((call for call in reversed(calls) if (call.group, call.seq) == (group, number)), None)


@once
def left_until_the_end(case: Case) -> LeftUntilTheEnd | None:
    """None where one of the ranks that ended shows no such turns, or another call lacks than of the others."""
    ended, failed = ended_before_others(case) or ([], [])
    if len(ended) + len(failed) < case.size:
        return None
    for other in failed:
        last = _last_numbered(case, other)
        place = site(last) if last is not None else None
        if last is None or place is None:
            continue
        found = [_without(case, rank, last, place) for rank in ended]
        if None not in found and found[0] is not None:
            return LeftUntilTheEnd((*ended,), (*failed,), last, other, place, *found[0])
    return None


def _without(case: Case, rank: int, last: Collective, place: Site) -> tuple[int, int, int, int] | None:
    """(since, end, usual, times) of a rank that has made turns enough for several such calls since its last one."""
    mine = [call for call in case.ranks[rank].evidence.board_calls if call.group == last.group and is_numbered(call)]
    steps = [call.step for call in mine if site(call) == place and call.step is not None]
    end = case.ranks[rank].step.step
    gaps = [later - earlier for earlier, later in pairwise(sorted({*steps}))]
    if len(gaps) < HABIT or end is None or mine[-1].seq >= last.seq:
        return None
    usual = max(gaps)
    times = max(Counter(steps).values())
    return (steps[-1], end, usual, times) if end - steps[-1] > HABIT * usual else None
