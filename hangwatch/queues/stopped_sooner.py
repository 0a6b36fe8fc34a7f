"""Ranks that wait with others, and whose hosts stopped sooner than those of the others: they may be stuck as well."""

from __future__ import annotations

from collections import Counter

from hangwatch import words

from .names import ranks
from .stuck import Stuck

_MOST_SOONER = 2  # ranks; where more stop at different places, hosts do not run ahead alike


def stopped_sooner(root: Stuck) -> tuple[str, ...]:
    """A sentence on the few of a group that enqueued fewer calls behind the stuck one than all others, which agree."""
    lanes = root.group.lanes
    far = {rank: lanes[rank].enqueued for rank in root.waiting if rank in lanes and lanes[rank].known}
    if not far:
        return ()
    (usual, often), *_ = Counter(far.values()).most_common(1)
    few = sorted(rank for rank, number in far.items() if number < usual)
    if not few or len(few) > _MOST_SOONER or often + len(few) < len(far) or often <= 2 * len(few):
        return ()
    others = [rank for rank in far if rank not in few]
    told = words.listed(f"rank {rank} up to number {far[rank]}" for rank in few)
    return (f"{ranks(others)} had enqueued calls of {root.group.title} up to number {usual}, and {told}",)
