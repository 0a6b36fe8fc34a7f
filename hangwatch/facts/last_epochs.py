"""Ranks that have done with their loop over epochs, after the same batches as all, while others began the next epoch.

hangwatch counts the epochs of a process from its start. A sampler knows the program's own count, where `set_epoch`
tells it: ranks that each resume from a checkpoint of their own begin at different epochs, and may end at the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangwatch.facts.batches import has_left_loop
from hangwatch.facts.case import Case, once
from hangwatch.facts.turns import fewer_turns
from hangwatch.ranks.sides import by_value


@dataclass(frozen=True)
class LastEpochs:
    """`left` have ended the epoch `ended` as their last one, and `others` are in `present`.

    `first` has the epoch of the program with which each rank began, where that is known of all and is not the same.
    """

    left: tuple[int, ...]
    others: tuple[int, ...]
    ended: int
    present: int
    first: Mapping[int, int]

    @property
    def at_one_end(self) -> bool:
        """By the program's count the others are in no later epoch than those have ended."""
        ended = {self.first[rank] + self.ended for rank in self.left} if self.first else set()
        return len(ended) == 1 and max(self.first[rank] + self.present for rank in self.others) <= max(ended)

    @property
    def odd(self) -> tuple[int, ...]:
        """The ranks that began otherwise than most; all of them where no side is the smaller one."""
        *_, fewer, most = sorted([[], *by_value(self.first).values()], key=len)
        return tuple(sorted(fewer if len(fewer) < len(most) else self.first))


@once
def last_epochs(case: Case) -> LastEpochs | None:
    """Who has stopped after an epoch, if no rank can be on its way to the next one."""
    epochs = {view.rank: view.loader.epoch for view in case if view.loader is not None}
    last = max(epochs.values(), default=0)
    left = tuple(rank for rank, epoch in epochs.items() if epoch < last and has_left_loop(case, case.ranks[rank]))
    others = tuple(rank for rank, epoch in epochs.items() if epoch == last)
    if not left or any(has_left_loop(case, case.ranks[rank]) for rank in others):
        return None
    if not case.blocked and not are_over(case, left) and not _are_past(case, left):
        return None  # the others have failed, and it may be on its way to the next epoch
    return LastEpochs(left, others, epochs[left[0]], last, _first(case, (*left, *others)))


def are_over(case: Case, ranks: tuple[int, ...]) -> bool:
    """Their training has ended, or their process, as it should."""
    return all(case.ranks[rank].over or case.ranks[rank].finished for rank in ranks)


def _are_past(case: Case, ranks: tuple[int, ...]) -> bool:
    """Their last call lies behind the loop in which the others failed."""
    short = fewer_turns(case)
    return short is not None and set(ranks) <= set(short.left)


def _first(case: Case, ranks: tuple[int, ...]) -> dict[int, int]:
    loaders = {rank: loader for rank in sorted(ranks) if (loader := case.ranks[rank].loader) is not None}
    found = {rank: each.first_epoch for rank, each in loaders.items() if each.first_epoch is not None}
    return found if len(found) == len(ranks) and len(set(found.values())) > 1 else {}
