"""Calls that no step of a rank shows as its own: those that torch's `Join` makes for it, and those in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def in_flight(
    readings: Iterable[Reading], key: tuple[str, tuple[int, ...]], base: Mapping[int, int], issued: Mapping[int, int]
) -> bool:
    """Ranks issued more in a group than others from `base` on, have gone on since, and these calls are incomplete.

    So their steps do not wait for them, but another thread, as that of a checkpoint: the others may make them yet.
    """
    least = min(issued[rank] - base[rank] for rank in issued)
    more = {rank: count for rank, count in issued.items() if count - base[rank] > least}
    heads = {reading.identity.rank: head for reading in readings for head in reading.heads if head.key == key}
    return all(rank in heads and 0 <= heads[rank].completed < more[rank] <= heads[rank].issued for rank in more)
