"""A job that failed in a collective because the calls of its ranks were mispaired since an earlier step."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.case import Case
from hangwatch.facts.process_end import end_of
from hangwatch.facts.rank_end import Why, aborted, ending, failed_in_torch
from hangwatch.model import Certainty, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding, Rule
from hangwatch.rules.step.early_exit import early_exit
from hangwatch.rules.step.early_exit import fewer_steps as left_early
from hangwatch.rules.step.exception_on_one_rank import swallowed
from hangwatch.rules.step.gradient_sync_mismatch import gradient_sync_mismatch
from hangwatch.rules.step.rank_local_decision import decided_by_a_trainer
from hangwatch.rules.step.rank_zero_only_collective import rank_zero_only
from hangwatch.rules.step.rank_zero_only_collective.by_turns import made_more_calls
from hangwatch.rules.step.skipped_collective import skipped_collective
from hangwatch.rules.step.skipped_collective.by_common_order import left_the_common_order
from hangwatch.rules.step.skipped_collective.by_habit import against_all_habit
from hangwatch.rules.step.skipped_collective.by_turns import made_fewer_calls
from hangwatch.rules.step.uneven_steps import fewer_steps, uneven_steps, uneven_validation

OF_HISTORIES: tuple[Rule, ...] = (
    uneven_validation,
    uneven_steps,
    early_exit,
    gradient_sync_mismatch,
    rank_zero_only,
    skipped_collective,
    against_all_habit,
    made_more_calls,
    made_fewer_calls,
    left_early,
    swallowed,
    fewer_steps,
    decided_by_a_trainer,
    left_the_common_order,
)


def ended_mispaired(case: Case) -> Finding | None:
    """Ranks were aborted or failed in collectives after a difference of the ledgers, which is the cause."""
    ended = [view for view in case if view.failed]
    if not ended or not all(_ended_in_collectives(view) for view in ended):
        return None
    found = next((found for rule in OF_HISTORIES if (found := rule(case)) is not None and found.culprits), None)
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
