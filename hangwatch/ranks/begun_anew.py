"""Loaders that raised an error, which the program caught: what it draws since then is of a new iterator."""

from __future__ import annotations

from hangwatch.model import ExceptionFacts, Reading

_LOADER = "torch/utils/data/"


def loader_error(reading: Reading, epoch: int) -> ExceptionFacts | None:
    """What a rank caught from its loader in its last step of an epoch, or before its first one."""
    steps = [entry.step for entry in reading.steps if entry.epoch == epoch]
    last = steps[-1] if steps else -1
    errors = (error for error in reading.caught if error.step == last)
    return next((error for error in errors if any(_LOADER in frame.file for frame in error.frames)), None)
