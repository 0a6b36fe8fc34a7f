"""A job that came down in a collective because its ranks had met crosswise since an earlier step."""

from __future__ import annotations

from dataclasses import replace

from ..ledger import Step
from ..records import Certainty, Status, StepName
from . import words
from .aborts import Why, aborted, ending, failed_in_torch
from .case import Case, RankView
from .finding import Finding, Rule
from .lone import rank_zero_only
from .loops import early_exit, uneven_steps, uneven_validation
from .processes import end_of
from .steps import skipped_collective
from .turns import fewer_turns

HABIT = 8  # steps that are the same make a habit


def ended_crosswise(case: Case) -> Finding | None:
    """Ranks were aborted or failed in collectives after the ledgers had parted: that is the cause, not the end."""
    ended = [view for view in case if (view.dead and not view.finished) or view.raised]
    if not ended or not all(_ended_in_collectives(view) for view in ended):
        return None
    parted: tuple[Rule, ...] = (uneven_steps, early_exit, rank_zero_only, skipped_collective, against_all_habit)
    rules: tuple[Rule, ...] = (uneven_validation, *parted, fewer_turns)
    found = next((found for rule in rules if (found := rule(case)) is not None and found.culprits), None)
    if found is None:
        return None
    first = min(ended, key=_seen_last)
    how = f"Rank {first.rank} ended because of it ({end_of(first.evidence.process)})."
    return replace(found, certainty=Certainty.LIKELY, status=Status.FAILED, details=(*found.details, how))


def against_all_habit(case: Case) -> Finding | None:
    """In its last whole step one rank issued fewer collectives than all ranks had in the steps before."""
    habits = {(rank, name): count for rank in case.ranks for name, count in _habits(case, rank).items()}
    names = {name for _, name in habits}
    for name in sorted(names):
        usual = {habits.get((rank, name)) for rank in case.ranks}
        last = {rank: steps[-2] for rank in case.ranks if len(steps := case.ledger.steps(rank)) >= HABIT + 2}
        if len(usual) != 1 or None in usual or len(last) < len(case.ranks):
            continue
        count = usual.pop() or 0
        odd = [rank for rank, step in last.items() if step.counts.get(name, 0) != count]
        if len(odd) == 1 and last[odd[0]].counts.get(name, 0) < count:
            return _short_of_habit(case, odd[0], last[odd[0]], name, count)
    return None


def _habits(case: Case, rank: int) -> dict[str, int]:
    """How many collectives the rank issued in each group in each of its steps before the last whole one."""
    steps = case.ledger.steps(rank)[-2 - HABIT : -2]
    if len(steps) < HABIT:
        return {}
    return {
        name: count
        for name, count in steps[-1].counts.items()
        if {step.counts.get(name, 0) for step in steps} == {count}
    }


def _short_of_habit(case: Case, rank: int, step: Step, group: str, usual: int) -> Finding:
    name = StepName(step.epoch, step.batch, step.step)
    made = step.counts.get(group, 0)
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"Rank {rank} issued {words.plural(made, 'collective')} in {words.step(name)}, and not {usual} as all ranks"
        " in the steps before; since then its calls met the wrong partners.",
        culprits=(case.ranks[rank].culprit(),),
        step=name,
        evidence=(f"in {words.step(name)}, rank {rank} issued {made} instead of {usual} collectives in group {group}",),
        awaited=(rank,),
    )


def _ended_in_collectives(view: RankView) -> bool:
    backend = aborted(view) and not view.raised
    return backend or failed_in_torch(view) or ending(view).why is not Why.ITSELF


def _seen_last(view: RankView) -> float:
    return view.reading.ticker_at if view.reading is not None else 0.0


GONE: tuple[Rule, ...] = (ended_crosswise,)
