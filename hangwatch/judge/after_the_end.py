"""A job that failed in a collective because the calls of its ranks were mispaired since an earlier step."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.case import Case
from hangwatch.facts.process_end import end_of
from hangwatch.facts.rank_end import Why, aborted, ending, failed_in_torch
from hangwatch.judge.histories import HISTORIES
from hangwatch.model import Certainty, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding


def ended_mispaired(case: Case) -> Finding | None:
    """Ranks were aborted or failed in collectives after a difference of the ledgers, which is the cause."""
    ended = [view for view in case if view.failed]
    if not ended or not all(_ended_in_collectives(view) for view in ended):
        return None
    found = next((found for rule in HISTORIES if (found := rule(case)) is not None and found.culprits), None)
    if found is None:
        return None
    first = min(ended, key=_seen_last)
    how = f"Rank {first.rank} ended because of it ({end_of(first.evidence.process)})."
    return replace(found, certainty=Certainty.LIKELY, status=Status.FAILED, details=(*found.details, how))


def _ended_in_collectives(view: RankView) -> bool:
    backend = aborted(view) and not view.raised
    return backend or failed_in_torch(view) or ending(view).why is not Why.ITSELF


def _seen_last(view: RankView) -> tuple[bool, float]:
    """The rank that its backend ended comes before those that lost it, or that the launcher ended then."""
    return ending(view).why is not Why.BACKEND, view.reading.ticker_at if view.reading is not None else 0.0
