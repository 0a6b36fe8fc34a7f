"""Loaders drawn from batch by batch together: `zip(real, synthetic)`, a trainer's dictionary of loaders.

The loop over them ends with the shortest, and leaves the other ones with data: that is no exit of the program's own.
Which loaders belong together no record says, but their counts do: the same line iterates over both, and in every epoch
on record of every rank they had delivered equally many batches, or the first of them one more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hangwatch.facts.data.drawn import Drawn, drawn_by_epoch
from hangwatch.model import LoaderFacts
from hangwatch.ranks.view import RankView

Epochs = Mapping[int, Drawn]


def ended_together(table: Mapping[int, dict[int, Drawn]], views: Iterable[RankView]) -> dict[int, dict[int, Drawn]]:
    """`table` (rank: epoch: what it drew), where the end of a loader drawn from together is an end of the data too."""
    known = {view.rank: view for view in views if view.rank in table}
    found = {rank: dict(epochs) for rank, epochs in table.items()}
    for index in sorted({each.index for view in known.values() for each in _beside(view)}):
        loaders = {rank: each for rank, view in known.items() for each in _beside(view) if each.index == index}
        if loaders.keys() == table.keys() and all(
            _together(table[rank], drawn_by_epoch(loader)) for rank, loader in loaders.items()
        ):
            for rank, loader in loaders.items():
                found[rank] |= _ends(table[rank], drawn_by_epoch(loader))
    return found


def _beside(view: RankView) -> list[LoaderFacts]:
    """The other loaders of a rank that the line of its training loader iterates over."""
    mine = view.loader.where if view.loader is not None else None
    return [each for each in view.loaders if not each.training and each.where == mine is not None and each.epoch >= 0]


def _together(mine: Epochs, theirs: Epochs) -> bool:
    """In each epoch equally many, or one more from the loader that is asked first and has no end of its own there."""
    if mine.keys() != theirs.keys():
        return False
    return all(abs(mine[epoch].count - theirs[epoch].count) <= 1 for epoch in mine)


def _ends(mine: Epochs, theirs: Epochs) -> dict[int, Drawn]:
    """The epochs that the other loader ended: it was exhausted, and the training loader was left with data."""
    return {
        epoch: Drawn(other.count, True, True, beside=True)
        for epoch, other in theirs.items()
        if other.exhausted and mine[epoch].ended and not mine[epoch].exhausted and other.count <= mine[epoch].count
    }
