"""Ranks of whole nodes that left no record: mostly their files were not collected, which tells nothing of the ranks."""

from __future__ import annotations

from .model import Queues
from .names import ranks

_SMALLEST = 4  # ranks of a node: two neighbours without a record may as well be two ranks that ended
_LARGEST = 16  # ranks of a node: the most accelerators that one host has


def absent_nodes(queues: Queues) -> frozenset[int]:
    """The ranks without a record, where these are all ranks of one or several nodes, as launchers number them."""
    missing = set(queues.untold()) - queues.unread if queues.record == "dump" else set[int]()
    world = len(queues.ranks | set(queues.missing()))
    for size in range(_SMALLEST, _LARGEST + 1):
        starts = {rank // size * size for rank in missing}
        if world % size == 0 and missing and len(missing) < world and len(starts) * size == len(missing):
            return frozenset(missing)
    return frozenset()


def not_collected(queues: Queues) -> str:
    """ranks 8-15 are whole nodes, whose files were ...: a sentence; "" where no whole node lacks its records."""
    absent = absent_nodes(queues)
    if not absent:
        return ""
    return (
        f"{ranks(absent)} may be whole nodes, whose dumps were probably not collected: nothing says whether a fault is"
        " there"
    )
