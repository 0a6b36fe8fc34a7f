"""Ranks that ended their program as they should, many steps after the last of the calls in which the others failed.

Such a rank has not left its loop early, nor destroyed its group too soon: it went through turns without the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hangwatch.facts.call_site import Site, site
from hangwatch.facts.calls.call_sites import HABIT
from hangwatch.facts.case import Case, once
from hangwatch.facts.processes.process_end import ended_before_others
from hangwatch.model import Collective
from hangwatch.ranks.ledger import is_numbered


@dataclass(frozen=True)
class LeftUntilTheEnd:
    """`rank` never made `call`, which each of the `failed` that are members made from a place where it had called, too.

    `since` is the step of its last call there, `end` that in which it ended, and `usual` the most steps from one of its
    calls there to the next. `times` is how often it called from there in one step.
    """

    rank: int
    failed: tuple[int, ...]
    call: Collective
    caller: int
    place: Site
    since: int
    end: int
    usual: int
    times: int


@once
def left_until_the_end(case: Case) -> LeftUntilTheEnd | None:
    """The first such rank; None where one of the ranks that ended shows no such turns."""
    ended, failed = ended_before_others(case) or ([], [])
    if not ended or len(ended) + len(failed) < case.size:
        return None
    found = [_of(case, rank, failed) for rank in ended]
    return found[0] if all(found) else None


def _of(case: Case, rank: int, failed: Sequence[int]) -> LeftUntilTheEnd | None:
    for other in failed:
        last = next((call for call in reversed(case.ranks[other].evidence.board_calls) if is_numbered(call)), None)
        place = site(last) if last is not None else None
        if last is not None and place is not None and (found := _without(case, rank, other, last, place)) is not None:
            return LeftUntilTheEnd(rank, tuple(failed), last, other, place, *found)
    return None


def _without(case: Case, rank: int, other: int, last: Collective, place: Site) -> tuple[int, int, int, int] | None:
    """(since, end, usual, times) of a rank that has made turns enough for several such calls since its last one."""
    mine = [call for call in case.ranks[rank].evidence.board_calls if call.group == last.group and is_numbered(call)]
    steps = [call.step for call in mine if site(call) == place and call.step is not None]
    end = case.ranks[rank].step.step
    gaps = [later - earlier for earlier, later in pairwise(sorted({*steps}))]
    if len(gaps) < HABIT or end is None or mine[-1].seq >= last.seq:
        return None
    usual = max(gaps)
    times = max(steps.count(step) for step in steps)
    return (steps[-1], end, usual, times) if end - steps[-1] > HABIT * usual else None
