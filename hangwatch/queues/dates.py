"""The dates of files: whether they can be those at which the records in them were written."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf

from .model import Queues

COPIED_S = 86_400.0  # a file so much younger than what it tells of was copied
OVERDUE = 1.5  # times its timeout: torch has given up a call by then, and written its records because of that


def by_records(queues: Queues, ranks: Iterable[int]) -> bool:
    """Whether records tell when those of the ranks were written, and no date of a file."""
    return (queues.told | queues.assumed).issuperset(ranks)


def copied_s(queues: Queues, ranks: Collection[int] = ()) -> float:
    """How much younger than what it tells of a file can be that was not copied; no limit where those records all tell
    themselves when they were written.
    """
    if ranks and by_records(queues, ranks):
        return inf
    limit_s = OVERDUE * queues.timeout_ns / 1e9
    return min(limit_s, COPIED_S) if limit_s and not queues.live else COPIED_S
