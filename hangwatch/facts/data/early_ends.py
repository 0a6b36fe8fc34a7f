"""Ranks in a call that all have made at the ends of their epochs alone, while their data is not exhausted."""

from __future__ import annotations

from hangwatch.facts.call_site import Site, comes_before, whole_path
from hangwatch.facts.calls.call_sites import HABIT, sites_of
from hangwatch.facts.calls.skip_paths import conditional, ways_past
from hangwatch.facts.calls.standing import by_site
from hangwatch.facts.case import Case, once
from hangwatch.facts.data.drawn import has_data_left
from hangwatch.ranks.sides import spread


@once
def ended_early(case: Case) -> tuple[int, ...]:
    """The fewer ranks, where the others wait in calls of their steps.

    Below a trainer, whose loop is not in the program, no line of that shows that a rank has left it. Where lines of the
    trainer's own do, one epoch on record that ended so is enough.
    """
    few = ((place, ranks) for place, ranks in by_site(case).items() if 2 * len(ranks) <= len(case.blocked))
    found = frozenset(
        rank
        for place, ranks in few
        if _ends_epochs(case, place, 1 if _is_behind(case, ranks) else HABIT)
        for rank in ranks
        if has_data_left(case.ranks[rank].loader)
    )
    others = [rank for rank in case.blocked if rank not in found]
    in_steps = bool(found) and all(sites_of(case).regular(rank) for rank in others)
    return tuple(sorted(found)) if len(found) <= len(others) and in_steps else ()


def _is_behind(case: Case, ranks: list[int]) -> bool:
    """They are further down in a function, a trainer's too, in which all others still are: behind its loop perhaps."""
    here = whole_path(case.ranks[ranks[0]].evidence.main_stack)
    others = {whole_path(case.ranks[rank].evidence.main_stack) for rank in spread(case.blocked) if rank not in ranks}
    return bool(others) and all(comes_before(there, here) for there in others)


def _ends_epochs(case: Case, place: Site, times: int) -> bool:
    """No condition leads there, which might hold amid an epoch, and all have called there at the ends of theirs."""
    if conditional(ways_past(case, place)):
        return False
    return all(len(sites_of(case).ends_made_at(rank, place)) >= times for rank in spread(case.ranks))
