"""What one rank drew from one loader, epoch by epoch, as far as its records still know."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.model import LoaderFacts


@dataclass(frozen=True)
class Drawn:
    """What one rank drew in one epoch of the training loader; `length` is what that has, where more of it is left."""

    count: int
    ended: bool  # the loop over it has ended
    exhausted: bool  # because there was no more data
    length: int = 0
    beside: bool = False  # of another loader, drawn from batch by batch with it


def drawn_by_epoch(loader: LoaderFacts, *, failed: bool = False, past: bool = False) -> dict[int, Drawn]:
    """What a rank drew in each epoch that its records still know, the present one included.

    A loop that counts draws exactly as many batches as the loader has, never asks for one more, and may keep the
    iterator: then the length says that the data was exhausted, once the rank is `past` the work on its last batch.
    A rank that `failed` has left its loop with an error on its way out: that says nothing of the loop.
    """
    exhausted = loader.exhausted or ((loader.left or past) and all_of_it(loader, loader.drawn))
    ended = exhausted or loader.left
    finished = list(loader.drawn_per_epoch)
    flags = list(loader.exhausted_per_epoch) + [True] * (len(finished) - len(loader.exhausted_per_epoch))
    # An epoch that has ended may be listed among the finished ones already, or only when the next one begins.
    listed = (
        ended and bool(finished) and finished[-1] == loader.drawn and len(finished) > loader.epoch - lost_epochs(loader)
    )
    first = loader.epoch + (1 if listed else 0) - len(finished)
    found = {
        first + index: Drawn(count, True, known or all_of_it(loader, count))
        for index, (count, known) in enumerate(zip(finished, flags, strict=False))
    }
    ended = ended and (exhausted or not failed)
    length = loader.length if has_data_left(loader) and not ended and not loader.resumed_at else None
    found[loader.epoch] = Drawn(loader.drawn, ended, exhausted, length or 0)
    return {epoch: drawn for epoch, drawn in found.items() if epoch >= 0}


def all_of_it(loader: LoaderFacts, drawn: int) -> bool:
    return loader.length is not None and 0 < loader.length <= loader.resumed_at + drawn


def has_data_left(loader: LoaderFacts | None) -> bool:
    """It has drawn less than its loader has, whose end it did not come to."""
    return loader is not None and not loader.exhausted and loader.drawn < (loader.length or 0)


KEPT_EPOCHS = 64  # epochs whose batches a board keeps; of a full list the oldest epochs are gone


def lost_epochs(loader: LoaderFacts) -> int:
    """Finished epochs that are no longer listed, when the list is full."""
    return max(loader.epoch + 1 - KEPT_EPOCHS, 0) if len(loader.drawn_per_epoch) >= KEPT_EPOCHS else 0
