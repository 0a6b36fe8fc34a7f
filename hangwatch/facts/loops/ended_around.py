"""Ranks that the end of the job found in a loop around that of the others, or behind it: they had left that one."""

from __future__ import annotations

from hangwatch.facts.call_site import comes_before
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.last_calls import Last, brought_down, is_early_at, last_calls
from hangwatch.facts.calls.skip_paths import reached_by_all
from hangwatch.facts.case import Case, once
from hangwatch.facts.differences.parted import within
from hangwatch.model import LoopFacts
from hangwatch.ranks.sides import spread


@once
def ended_around(case: Case) -> tuple[int, ...]:
    """The fewer ranks, which the end of the job found in a loop around that of the others; none where that is not sure.

    All stood in calls that they had made before, so none has a call of its own; or in one that all come to behind it.
    """
    lasts, sites = last_calls(case), sites_of(case)
    usual = [rank for rank, last in lasts.items() if last.call is not None and sites.used(rank, last.call)]
    if not brought_down(case) or len(lasts) < len(case.ranks):
        return ()
    if len(usual) < len(case.ranks):
        return _ended_behind(case, lasts, usual)
    loops = {view.rank: view.now.loop for view in case if view.now.loop is not None}
    found = tuple(rank for rank in loops if reached_by_all(case, case.ranks[rank]) and _is_around(loops, rank))
    return found if 2 * len(found) < len(case.ranks) else ()


def _ended_behind(case: Case, lasts: dict[int, Last], usual: list[int]) -> tuple[int, ...]:
    """The fewer ranks, if no condition leads to their calls, which lie behind the loop in which the others stood."""
    found = tuple(rank for rank in lasts if rank not in usual)
    if 2 * len(found) >= len(case.ranks):
        return ()
    some, others = spread(found), spread(usual)
    places = {rank: lasts[rank].site.lines for rank in others}
    early = all(is_early_at(case, case.ranks[rank], lasts[rank].site.lines, places) for rank in some)
    return found if early and all(_is_behind(case, lasts, rank, other) for rank in some for other in others) else ()


def _is_behind(case: Case, lasts: dict[int, Last], rank: int, other: int) -> bool:
    loop, call = case.ranks[other].now.loop, lasts[other].call
    mine, theirs = lasts[rank].site.lines, lasts[other].site.lines
    return loop is not None and call is not None and comes_before(theirs, mine) and not within(loop, call, mine)


def _is_around(loops: dict[int, LoopFacts], rank: int) -> bool:
    """The loop of `rank` lies around those of other ranks, and around none that it shares with one."""
    others = [loop for other, loop in loops.items() if loop.where != loops[rank].where]
    return bool(others) and all(loops[rank].where in loop.outer for loop in others)
