"""Calls of background threads, which fall into other steps on each rank, or may come yet."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.model import Divergence
from hangwatch.ranks.ledger import all_complete
from hangwatch.ranks.view import RankView


def made_up_for(case: Case, divergence: Divergence) -> bool:
    """A background thread has that group for itself, and all of its calls are complete on every member.

    Such calls fall into other steps on each rank, and none of them is missing.
    """
    group = case.ledger.groups.get((divergence.group, divergence.members))
    if group is None or not all(_in_background(case, rank, group.name) for rank in group.heads):
        return False
    took_part = all(rank in case.ranks and _has_ended(case.ranks[rank]) for rank in group.silent)
    return took_part and all_complete(list(group.heads.values()))


def may_come_yet(case: Case, divergence: Divergence) -> bool:
    """Each rank with fewer calls waits for a thread of its own, which is on its way and may make the others."""
    most = max(divergence.counts.values())
    fewer = [case.ranks[rank] for rank, count in divergence.counts.items() if count < most and rank in case.ranks]
    return bool(fewer) and all(view.main_waits_for_a_thread and view.threads_that_may_communicate() for view in fewer)


def _has_ended(view: RankView) -> bool:
    """Its groups are gone with it, and what the others completed with it is on their records."""
    return view.over or view.finished


def _in_background(case: Case, rank: int, group: str) -> bool:
    """All recorded calls of `rank` in a group were issued by another thread than the one that trains."""
    names = {call.thread_name for call in case.ledger.calls_in(rank, group)}
    return bool(names) and not names & {"", case.ranks[rank].now.thread}
