"""Calls that torch's `Join` made for a rank without inputs, in place of those of the ranks that still have some."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch.model import Collective, Reading
from hangwatch.stacks.frames import name_of

JOIN = "torch/distributed/algorithms/join.py"


def by_join(call: Collective) -> bool:
    """The end of the user's `with Join` made it; what the ranks with inputs tell Join is called by their modules."""
    return any(frame.file.endswith(JOIN) and name_of(frame.function) == "__exit__" for frame in call.frames)


def asks_join(readings: Iterable[Reading], group: str) -> bool:
    """In each forward a rank tells `Join` that it has inputs, by a call of that group: ranks may run out of theirs.

    Of several epochs within one `Join` each rank begins the next one by itself, and one step is another on each.
    """
    calls = (call for reading in readings for call in reading.calls if call.group == group)
    return any(frame.file.endswith(JOIN) for call in calls for frame in call.frames)


def stood_in(readings: Iterable[Reading], group: str) -> bool:
    """On a rank whose steps have no names, `Join` made calls of that group: its last step holds steps of the others.

    From there on one index is another step on each rank, and their numbers cannot be compared.
    """
    unnamed = (reading for reading in readings if reading.steps and reading.steps[-1].epoch is None)
    return any(call.group == group and by_join(call) for reading in unnamed for call in reading.calls)
