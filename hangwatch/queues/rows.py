"""Rows of calls, one of each rank, as numbers for what the calls are and where they come from."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping

from .departure import Departure
from .readings import FARTHEST


def usual_rank(rows: dict[int, array[int]]) -> int:
    """The rank whose history most others share, call by call: ranks that have not come so far have no vote there."""
    alive, start = dict(rows), 0
    while True:
        length = min(map(len, alive.values()))
        parts = {rank: row[start:length].tobytes() for rank, row in alive.items()}
        (common, _), *_ = Counter(parts.values()).most_common(1)
        shared = {rank: row for rank, row in alive.items() if parts[rank] == common}
        longer = {rank: row for rank, row in shared.items() if len(row) > length}
        if not longer:
            return next(iter(shared))
        alive, start = longer, length


def left_out_before(history: array[int], wanted: int, own: int) -> int:
    """How many calls a rank left out that made `own` where `wanted` was due, as the order so far tells; 0 for none."""
    for place in reversed(range(len(history))):
        if history[place] == wanted:
            behind = history[place + 1 : place + 1 + FARTHEST]
            return next((count for count, token in enumerate(behind, 1) if token == own), 0)
    return 0


def came(first: Departure, rows: Mapping[int, array[int]]) -> set[int]:
    """The ranks that came to the call at which the first of them left the order."""
    return {rank for rank in rows if first.group.lanes[rank].numbers[-1] >= first.number}


def did_most(first: Departure, found: Iterable[Departure], rows: Mapping[int, array[int]]) -> bool:
    """Whether most ranks that came to the call did as is usual; a rank without a record may be of either side."""
    there, group = came(first, rows), first.group
    other = {each.ranks[0] for each in found if each.number <= first.number}
    unknown = 0 if group.guessed else len(group.members) - len(rows)
    return 2 * len(there - other) > len(there) + unknown
