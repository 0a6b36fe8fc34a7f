"""How often ranks synchronise their gradients: every so many steps, or after numbers of steps that change.

Where a record has the calls of a backward, these tell it; else the steps with more collectives than others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.case import Case
from hangwatch.model import Divergence
from hangwatch.ranks.ledger import Step
from hangwatch.ranks.sides import by_value

TURNS = 3  # of a rhythm that a rank has taken up, for it to be one


def sides_by_count(divergence: Divergence) -> list[list[int]]:
    """The ranks by how much they issued in that step, the least first."""
    return [ranks for _, ranks in sorted(by_value(divergence.counts).items())]


def representatives(divergence: Divergence) -> list[int]:
    """A few ranks of each side."""
    return [rank for ranks in sides_by_count(divergence) for rank in ranks[:4]]


def measure(case: Case, divergence: Divergence) -> int | None:
    """None where backwards are recorded of each side; else the least of the counts, which then are compared."""
    recorded = all(_synchronised(case, rank, divergence.group) for rank in representatives(divergence))
    return None if recorded else _least(case, divergence)


def _least(case: Case, divergence: Divergence) -> int:
    """The fewest collectives that any member has issued in a step: one measure for all, or a single step that one rank
    left out would make its rhythm look like another than that of the others."""
    steps = (step for rank in divergence.members for step in case.ledger.complete_steps(rank))
    return min((step.counts.get(divergence.group, 0) for step in steps), default=0)


def cadence(case: Case, rank: int, group: str, least: int | None = None, *, since: int | None = None) -> int | None:
    """Every how many steps `rank` synchronises its gradients in a group; None where there is no such rule.

    Where calls are recorded, those of backward count; else the steps with more collectives than `least`. A rank may
    have taken up another rhythm in the step `since`: then it must have kept that for some turns.
    """
    steps = [step for step in case.ledger.complete_steps(rank) if since is None or step.step >= since]
    at = _turns(case, rank, group, steps, least)
    gaps = Counter(after - before for before, after in pairwise(step for step in at if step >= (since or 0)))
    if not gaps or (since is not None and gaps.total() < TURNS):
        return None
    gap, times = gaps.most_common(1)[0]
    if gaps.total() == 1:  # the first turn of the rhythm began with the training; loaders may be one batch ahead
        return gap if steps[0].step == 0 and at[0] + 1 in (gap, gap + 1) else None
    return gap if 5 * times >= 4 * gaps.total() else None


def gaps_between(case: Case, rank: int, group: str, least: int | None) -> list[int]:
    """The batches from each synchronisation of a rank to the next; none where it synchronised in every one."""
    turns = _turns(case, rank, group, case.ledger.complete_steps(rank), least)
    gaps = [later - earlier for earlier, later in pairwise(turns)]
    return gaps if any(gap > 1 for gap in gaps) else []


def _turns(case: Case, rank: int, group: str, steps: Sequence[Step], least: int | None) -> list[int]:
    """The steps in which `rank` synchronised: of its recorded backwards, else those with more than the `least`."""
    return sorted(_synchronised(case, rank, group)) if least is None else _busy_steps(steps, group, least)


def _synchronised(case: Case, rank: int, group: str) -> set[int]:
    return sites_of(case).synchronised(rank, group)


def _busy_steps(steps: Sequence[Step], group: str, least: int) -> list[int]:
    """The steps with more than the `least` collectives of the group; all of them, where they are alike.

    None where only the last steps of epochs have more: they hold what is called between two epochs, too.
    """
    inside = [step for step, after in pairwise(steps) if step.epoch == after.epoch]
    levels = Counter(count for step in steps if (count := step.counts.get(group, 0)) > least)
    # DDP finds out about its buckets once, with further collectives, in the step after its first synchronisation.
    once = {count for count, times in levels.items() if times == 1} if max(levels.values(), default=0) > 2 else set()
    busy = [step.step for step in steps if (count := step.counts.get(group, 0)) > least and count not in once]
    if busy and all(step.counts.get(group, 0) == least for step in inside):
        return []
    return busy or [step.step for step in steps if least > 0]
