"""Calls that torch's `Join` made for a rank without inputs, in place of those of the ranks that still have some."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch.model import Collective, Reading
from hangwatch.stacks.frames import name_of

JOIN = "torch/distributed/algorithms/join.py"


def by_join(call: Collective) -> bool:
    """The end of the user's `with Join` made it; what the ranks with inputs tell Join is called by their modules."""
    return any(frame.file.endswith(JOIN) and name_of(frame.function) == "__exit__" for frame in call.frames)


def stood_in(readings: Iterable[Reading], group: str) -> bool:
    """On a rank whose steps have no names, `Join` made calls of that group: its last step holds steps of the others.

    From there on one index is another step on each rank, and their numbers cannot be compared.
    """
    unnamed = (reading for reading in readings if reading.steps and reading.steps[-1].epoch is None)
    return any(call.group == group and by_join(call) for reading in unnamed for call in reading.calls)
