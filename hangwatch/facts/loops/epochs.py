"""Ranks that began no further epoch: which ones, and whether the source shows a way out of the loop over the epochs.

hangwatch counts the epochs of a process from its start. A sampler knows the program's own count, where `set_epoch`
tells it: ranks that each resume from a checkpoint of their own begin at different epochs, and may end at the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangwatch.facts.case import Case, once
from hangwatch.facts.data.batches import has_left_inner_loop, has_left_loop, loop_of_the_others, runs_below_a_package
from hangwatch.facts.loops.turns import fewer_turns
from hangwatch.model import Frame, LoopFacts
from hangwatch.ranks.sides import by_value, spread
from hangwatch.ranks.view import RankView


@dataclass(frozen=True)
class EndedEpochs:
    """`left` are past the loop over the epochs after `epoch`, and the others are in epoch `last`.

    `closed` is the loop over the epochs where its source shows no way out of it: then it ended by its bounds. `first`
    has the epoch of the program with which each rank began, where that is known of all and is not the same.
    """

    left: tuple[int, ...]
    others: tuple[int, ...]
    epoch: int
    last: int
    loop: LoopFacts | None
    closed: Frame | None
    first: Mapping[int, int]

    @property
    def at_one_end(self) -> bool:
        """By the program's count the others are in no later epoch than those have ended."""
        ended = {self.first[rank] + self.epoch for rank in self.left} if self.first else set()
        return len(ended) == 1 and max(self.first[rank] + self.last for rank in self.others) <= max(ended)

    @property
    def began_otherwise(self) -> tuple[int, ...]:
        """The ranks that began otherwise than most; all of them where no side is the smaller one."""
        *_, fewer, most = sorted([[], *by_value(self.first).values()], key=len)
        return tuple(sorted(fewer if len(fewer) < len(most) else self.first))


@once
def ended_epochs(case: Case) -> EndedEpochs | None:
    epochs = {view.rank: view.loader.epoch for view in case if view.loader is not None}
    if not epochs or not case.in_trouble:
        return None
    last = max(epochs.values())
    others = tuple(rank for rank, epoch in epochs.items() if epoch == last)
    inside = {case.ranks[rank].now.loop for rank in spread(others)}
    left = tuple(rank for rank, epoch in epochs.items() if epoch < last and _has_left(case, case.ranks[rank], inside))
    if not left and (left := _left_a_trainer(case)):
        others = tuple(rank for rank in epochs if rank not in left)
    if not left or any(has_left_loop(case, case.ranks[rank]) for rank in others):
        return None
    if not case.blocked and not are_over(case, left) and not _are_past(case, left):
        return None  # the others have failed, and it may be on its way to the next epoch
    loop = loop_of_the_others(case, left)
    first = _first(case, (*left, *others))
    return EndedEpochs(left, others, epochs[left[0]], last, loop, _closed(case, others, loop), first)


def _left_a_trainer(case: Case) -> tuple[int, ...]:
    """All ranks have drawn all batches of one epoch, and these are past the trainer's loop in which the others stand.

    Nothing was drawn of the next epoch yet: a trainer communicates before it draws.
    """
    loaders = {view.rank: view.loader for view in case}
    whole = all(loader is not None and loader.length == loader.drawn for loader in loaders.values())
    if not whole or len({loader.epoch for loader in loaders.values() if loader is not None}) > 1:
        return ()
    left = tuple(rank for rank in loaders if has_left_loop(case, case.ranks[rank]))
    others = tuple(rank for rank in loaders if rank not in left)
    inside = all(rank in case.blocked for rank in others) and runs_below_a_package(case, left)
    return left if others and inside else ()


def _has_left(case: Case, view: RankView, inside: set[LoopFacts | None]) -> bool:
    """It stands outside of every loop, or in one around that over the epochs, such as a search's over its trials.

    Those `inside` are the loops over the data, in which the others stand; the next one around is that over the epochs.
    """
    if has_left_loop(case, view):
        return True
    mine = view.now.loop
    around = mine is not None and all(loop is not None and mine.where in loop.outer[1:] for loop in inside)
    return around and has_left_inner_loop(case, view)


def _first(case: Case, ranks: tuple[int, ...]) -> dict[int, int]:
    loaders = {rank: loader for rank in sorted(ranks) if (loader := case.ranks[rank].loader) is not None}
    found = {rank: each.first_epoch for rank, each in loaders.items() if each.first_epoch is not None}
    return found if len(found) == len(ranks) and len(set(found.values())) > 1 else {}


def are_over(case: Case, ranks: tuple[int, ...]) -> bool:
    """Their training has ended, or their process, as it should."""
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
        where.source_line
        for view in case.views(ranks)
        if view.loader is not None and (where := view.loader.where) is not None
    }
    levels = [(loop.where, loop.leaves), *zip(loop.outer, loop.outer_leaves, strict=True)]
    known = [number for number, (where, _) in enumerate(levels) if where.source_line in data]
    around = levels[known[0] + 1 :] if known else []
    return around[0][0] if around and not any(leaves for _, leaves in around) else None
