"""Ranks that wait behind the place where the others wait: they have left a call out, and are not alone in one."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.call_site import comes_before, whole_path
from hangwatch.facts.calls.call_sites import Sites, sites_of
from hangwatch.facts.calls.skip_paths import asked_by_a_package, reached_by_all
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.batches import first_uneven
from hangwatch.ranks.view import RankView


@dataclass(frozen=True)
class PassedCallSite:
    """Ranks that wait at a call that every rank reaches, past the place where the others wait: they left out a call."""

    past: tuple[int, ...]
    behind: tuple[int, ...]


@once
def passed_call_site(case: Case) -> PassedCallSite | None:
    """Some ranks wait at a call that no condition guards, outside of the loop or call in which the others wait.

    Their collectives have one number, but not one call site: the ranks diverged before, where nothing was counted.
    """
    numbers = {(id(entry.group), entry.seq) for entry in case.blocked.values() if entry.group and entry.seq}
    if len(numbers) > 1 or len({entry.where for entry in case.blocked.values()}) < 2:
        return None
    sites, places = sites_of(case), {}
    for rank in case.blocked:
        place = sites.now(rank)
        if place is None or case.blocked[rank].to_a_peer:
            return None
        places[rank] = place
    past = tuple(sorted(rank for rank in places if not sites.regular(rank)))
    behind = tuple(rank for rank in places if rank not in past)
    if not past or not behind or first_uneven(case) is not None:
        return None
    if len({places[rank] for rank in past}) > 1 or not all(_is_past(case, sites, rank, behind[0]) for rank in past):
        return None
    return PassedCallSite(past, behind)


def is_past_a_call(case: Case, rank: int) -> bool:
    """`rank` has left out a call that came before its own: it is not alone in a call, but ahead."""
    found = passed_call_site(case)
    return found is not None and rank in found.past


def _is_further_in_a_package(case: Case, rank: int, behind: int) -> bool:
    """A function of a trainer leads both sides to where they wait, and `rank` from a later line, whatever its rank.

    Both are in one turn of the trainer's loops: in an earlier turn the later line is behind, and not ahead.
    """
    sides = (case.ranks[rank], case.ranks[behind])
    mine, theirs = (view.evidence.main_stack for view in sides)
    later = comes_before(whole_path(theirs), whole_path(mine)) and not asked_by_a_package(case, mine)
    return later and _in_one_turn(*sides)


def _in_one_turn(one: RankView, other: RankView) -> bool:
    """Both are in the same step, and have drawn as many batches from all of their loaders."""
    made = [view.reading.progress for view in (one, other) if view.reading is not None]
    return len(made) == 2 and (made[0].step, made[0].draws) == (made[1].step, made[1].draws)


def _is_past(case: Case, sites: Sites, rank: int, behind: int) -> bool:
    mine, theirs = sites.now(rank), sites.now(behind)
    if mine is None or theirs is None or not reached_by_all(case, case.ranks[rank]):
        return False
    later = comes_before(theirs.lines, mine.lines) or _is_further_in_a_package(case, rank, behind)
    return later and sites.shared(behind, [rank]) and not sites.shared(rank, [behind])
