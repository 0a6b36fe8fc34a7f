"""How many optimizer steps the ranks have made by each forward, where their steps are their forwards.

Ranks that accumulate gradients alike make their optimizer steps after the same forwards. A rank that splits a batch, or
repeats one, makes more forwards for it: each one's backward is paired with that of another batch of the others, in
silence, until the others have done all their batches. By their optimizer steps those are ahead then, and not early.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from hangwatch.facts.case import Case, once
from hangwatch.facts.data.batches import has_left_inner_loop
from hangwatch.model import Divergence
from hangwatch.ranks.own_steps import steps_are_forwards
from hangwatch.ranks.paces import Pace, fit_together, pace_of
from hangwatch.ranks.sides import by_value
from hangwatch.ranks.view import RankView

SAME_UPDATES = 2  # recorded steps, by whose begin all ranks had made the same number of optimizer steps
UPDATES = 10  # optimizer steps in which a pace shows
OTHER_PACE = 1.25  # times as many forwards: what is under way and the first turns differ by one or two
STOPPED = 4  # times as many forwards as for one optimizer step on average: it makes none any more
BEHIND = 2  # optimizer steps that a rank lacks at least: for one, it may as well have left that step out alone


@dataclass(frozen=True)
class UpdatesApart:
    """`behind` lack optimizer steps, which `others` made after as many forwards; `step` is the first without one.

    `made` are the optimizer steps of each rank by the begin of the step `last`, the last one that all have begun.
    """

    behind: tuple[int, ...]
    others: tuple[int, ...]
    step: int
    last: int
    made: dict[int, int]


@once
def updates_apart(case: Case) -> UpdatesApart | None:
    """The fewer ranks that are behind the others in optimizer steps, by equally many forwards; None where none are.

    Of two halves those that are behind, where the others made as many optimizer steps in each forward of theirs.
    """
    if not _all_count_forwards(case) or _pace_is_no_cause(case):
        return None
    updates = {view.rank: _by_step(view) for view in case}
    common = sorted(set.intersection(*(set(each) for each in updates.values())))
    apart = [step for step in common if len({each[step] for each in updates.values()}) > 1]
    if not apart or common.index(apart[0]) < SAME_UPDATES:
        return None
    made = {rank: each[common[-1]] for rank, each in updates.items()}
    sides = sorted(by_value(made).items())
    if len(sides) != 2 or sides[1][0] - sides[0][0] < BEHIND:
        return None
    more = 2 * len(sides[0][1]) - len(made)
    if more > 0 or (not more and not all(_is_even(updates[rank]) for rank in sides[1][1])):
        return None
    first = common[common.index(apart[0]) - 1]
    return UpdatesApart(tuple(sides[0][1]), tuple(sides[1][1]), first, common[-1], made)


def _is_even(made: dict[int, int]) -> bool:
    """As many optimizer steps in each step on record."""
    steps = sorted(made)
    return len({made[after] - made[before] for before, after in pairwise(steps) if after - before == 1}) == 1


@dataclass(frozen=True)
class OtherPace:
    """`odd` took more training forwards than `others` for as many optimizer steps, or fewer; `forwards` are by rank."""

    odd: tuple[int, ...]
    others: tuple[int, ...]
    updates: int
    forwards: dict[int, int]


@once
def other_pace(case: Case) -> OtherPace | None:
    """The fewer ranks that make their optimizer steps after another number of forwards than most; None where none do.

    All have made as many, since gradients meet by their number and not by the forward that they are of.
    """
    if not _all_count_forwards(case) or _pace_is_no_cause(case):
        return None
    updates = {_made(view) for view in case}
    forwards = {view.rank: view.step.step + 1 for view in case if view.step.step is not None}
    if max(updates) - min(updates) > 1 or min(updates) < UPDATES or len(forwards) < len(case.ranks):
        return None
    if any(_updates_no_more(view) for view in case):
        return None  # until then its pace may have been that of the others
    usual = sorted(forwards.values())[len(forwards) // 2]
    odd = tuple(rank for rank, made in forwards.items() if max(made, usual) >= OTHER_PACE * min(made, usual))
    others = tuple(rank for rank in forwards if rank not in odd)
    alike = max(forwards[rank] for rank in others) - min(forwards[rank] for rank in others) < BEHIND
    if not odd or not alike or 2 * len(odd) >= len(forwards) or len({forwards[rank] > usual for rank in odd}) > 1:
        return None
    return OtherPace(odd, others, min(updates), forwards)


def _updates_no_more(view: RankView) -> bool:
    """It made no optimizer step in many times as many forwards as it took for one on average."""
    made, since = _by_step(view), 0
    for step in sorted(made, reverse=True):
        if made[step] < _made(view):
            break
        since += 1
    return view.step.step is not None and since * _made(view) > STOPPED * (view.step.step + 1)


def _all_count_forwards(case: Case) -> bool:
    return bool(case.ranks) and len(case.ranks) >= case.size and all(steps_are_forwards(view) for view in case)


def _pace_is_no_cause(case: Case) -> bool:
    return any(keep_own_paces(case, divergence) for divergence in case.divergences)


def are_behind(case: Case, ranks: Iterable[int], others: Iterable[int]) -> bool:
    """Each of `ranks` has made fewer optimizer steps than every one of `others`, where forwards are their steps."""
    here, there = (case.views(each) for each in (ranks, others))
    if not here or not there or not all(steps_are_forwards(view) for view in (*here, *there)):
        return False
    return max(map(_made, here)) < min(map(_made, there))


def _made(view: RankView) -> int:
    return view.reading.progress.optimizer_steps if view.reading is not None else 0


def _by_step(view: RankView) -> dict[int, int]:
    entries = view.reading.steps if view.reading is not None else ()
    return {entry.step: entry.optimizer_steps for entry in entries if entry.optimizer_steps is not None}


def keep_own_paces(case: Case, divergence: Divergence) -> bool:
    """The ranks accumulate over unlike numbers of forwards, and issue equally many collectives for each optimizer step.

    Those meet well, and no forward lacks a call. Only data that ends on all ranks of one pace before that of another
    makes such a job hang.
    """
    if divergence.epoch is not None:
        return False
    paces = {rank: _pace(case, rank, divergence.group) for rank in divergence.counts}
    if not fit_together(paces.values()):
        return False
    left = {rank for rank in paces if rank in case.ranks and has_left_inner_loop(case, case.ranks[rank])}
    sides = [{rank in left for rank in ranks} for ranks in by_value(paces).values()]
    return any(len(side) > 1 for side in sides) or {True} not in sides


def _pace(case: Case, rank: int, group: str) -> Pace | None:
    view = case.ranks.get(rank)
    if view is None or view.reading is None or not steps_are_forwards(view):
        return None
    return pace_of(view.reading.steps, group)
