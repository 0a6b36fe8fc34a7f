"""Ranks that began no further epoch: which ones, and whether the source shows a way out of the loop over the epochs."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.batches import has_left_loop, loop_of_the_others
from hangwatch.facts.case import Case, once
from hangwatch.facts.turns import fewer_turns
from hangwatch.model import Frame, LoopFacts


@dataclass(frozen=True)
class EndedEpochs:
    """`left` are past the loop over the epochs after `epoch`, and the others are in epoch `last`.

    `closed` is the loop over the epochs where its source shows no way out of it: then it ended by its bounds.
    """

    left: tuple[int, ...]
    others: tuple[int, ...]
    epoch: int
    last: int
    loop: LoopFacts | None
    closed: Frame | None


@once
def ended_epochs(case: Case) -> EndedEpochs | None:
    epochs = {view.rank: view.loader.epoch for view in case if view.loader is not None}
    if not epochs or not case.in_trouble:
        return None
    last = max(epochs.values())
    left = tuple(rank for rank, epoch in epochs.items() if epoch < last and has_left_loop(case, case.ranks[rank]))
    others = tuple(rank for rank, epoch in epochs.items() if epoch == last)
    if not left or any(has_left_loop(case, case.ranks[rank]) for rank in others):
        return None
    if not case.blocked and not are_over(case, left) and not _are_past(case, left):
        return None  # the others have failed, and it may be on its way to the next epoch
    loop = loop_of_the_others(case, left)
    return EndedEpochs(left, others, epochs[left[0]], last, loop, _closed(case, others, loop))


def are_over(case: Case, ranks: tuple[int, ...]) -> bool:
    return all(case.ranks[rank].over or case.ranks[rank].finished for rank in ranks)


def _are_past(case: Case, ranks: tuple[int, ...]) -> bool:
    """Their last call lies behind the loop in which the others failed."""
    short = fewer_turns(case)
    return short is not None and set(ranks) <= set(short.left)


def _closed(case: Case, ranks: tuple[int, ...], loop: LoopFacts | None) -> Frame | None:
    """The innermost loop around that over the data, if neither it nor one around it has a way out."""
    if loop is None or loop.exits or loop.swallows is not None or len(loop.outer) != len(loop.outer_leaves):
        return None
    data = {
        (where.file, where.line)
        for view in case.views(ranks)
        if view.loader is not None and (where := view.loader.where) is not None
    }
    levels = [(loop.where, loop.leaves), *zip(loop.outer, loop.outer_leaves, strict=True)]
    known = [number for number, (where, _) in enumerate(levels) if (where.file, where.line) in data]
    around = levels[known[0] + 1 :] if known else []
    return around[0][0] if around and not any(leaves for _, leaves in around) else None
