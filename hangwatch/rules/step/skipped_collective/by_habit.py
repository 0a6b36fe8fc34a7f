"""A call left out in the last whole step, against the habit of all ranks."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.model import Certainty
from hangwatch.ranks.ledger import Step
from hangwatch.rules.finding import Finding

EQUAL_STEPS = 8  # steps in a row with equal counts: of counts alone, without call sites, fewer may be chance


def against_all_habit(case: Case) -> Finding | None:
    """In its last whole step one rank issued fewer collectives than all ranks had in the steps before."""
    habits = {(rank, name): count for rank in case.ranks for name, count in _habits(case, rank).items()}
    names = {name for _, name in habits}
    for name in sorted(names):
        usual = {habits.get((rank, name)) for rank in case.ranks}
        last = {rank: steps[-2] for rank in case.ranks if len(steps := case.ledger.steps(rank)) >= EQUAL_STEPS + 2}
        if len(usual) != 1 or None in usual or len(last) < len(case.ranks):
            continue
        count = usual.pop() or 0
        odd = [rank for rank, step in last.items() if step.counts.get(name, 0) != count]
        if len(odd) == 1 and last[odd[0]].counts.get(name, 0) < count:
            return _short_of_habit(case, odd[0], last[odd[0]], name, count)
    return None


def _habits(case: Case, rank: int) -> dict[str, int]:
    """How many collectives the rank issued in each group in each of its steps before the last whole one."""
    steps = case.ledger.steps(rank)[-2 - EQUAL_STEPS : -2]
    if len(steps) < EQUAL_STEPS:
        return {}
    return {
        name: count
        for name, count in steps[-1].counts.items()
        if {step.counts.get(name, 0) for step in steps} == {count}
    }


def _short_of_habit(case: Case, rank: int, step: Step, group: str, usual: int) -> Finding:
    made, when = step.counts.get(group, 0), words.step(step.name)
    return Finding(
        "skipped-collective",
        Certainty.LIKELY,
        f"Rank {rank} issued {words.plural(made, 'collective')} in {when}, and not {usual} as all ranks"
        " in the steps before; since then its calls are mispaired.",
        culprits=(case.ranks[rank].culprit(),),
        step=step.name,
        evidence=(f"in {when}, rank {rank} issued {made} instead of {usual} collectives in group {group}",),
        awaited=(rank,),
    )
