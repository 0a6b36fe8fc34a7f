"""Faults that stand beside the one that is told first, in groups that share no rank with it: none follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hangwatch.model import Certainty, Status

from .finding import Finding
from .follow import Chain
from .model import Queues
from .stuck import Kind

_ENDS_JUDGED = 16  # further ends of chains that are judged: in a large job many may be one fault
_FAULTS_TOLD = 3  # besides the first; more would hide it
_NOT_COME = frozenset({Kind.ABSENT, Kind.MISSING})

Judged = Callable[[Chain], Finding | None]
"""The finding for a chain; None where what it ends at is on its way."""


def with_others(queues: Queues, first: Finding, chain: Chain, later: Sequence[Chain], judged: Judged) -> Finding:
    """The first finding with the further ones as details.

    Their ranks are to blame as well, unless all that is known of them is that they left no record. A first cause that
    was proven is no more than likely then: certainty is that of all ranks that are named.
    """
    if first.status is not Status.HUNG or not first.culprits:
        return first
    for other, found in _others(queues, first, chain, later, judged):
        blamed = found.culprits if other.roots[0].kind is not Kind.MISSING else ()
        first = replace(
            first,
            certainty=Certainty.LIKELY if first.certainty is Certainty.PROVEN and blamed else first.certainty,
            culprits=(*first.culprits, *blamed),
            victims=tuple(sorted({*first.victims, *found.victims} - {rank for rank, _ in (*first.culprits, *blamed)})),
            details=(*first.details, f"Besides, {found.summary[0].lower()}{found.summary[1:]}"),
            waits=(*first.waits, *found.waits),
        )
    return first


def _others(
    queues: Queues, first: Finding, chain: Chain, later: Sequence[Chain], judged: Judged
) -> Iterator[tuple[Chain, Finding]]:
    """The further findings, each on ranks that no earlier one blames."""
    taken = chain.members | {rank for rank, _ in first.culprits}
    apart = (each for each in later if taken.isdisjoint(each.members))
    told = 0
    for other in list(apart)[:_ENDS_JUDGED]:
        if told == _FAULTS_TOLD or not taken.isdisjoint(other.members) or not _may_be_told(queues, other):
            continue
        found = judged(other)
        if found is not None and found.status is Status.HUNG and found.culprits and _is_known(found, other):
            taken |= other.members
            told += 1
            yield other, found


def _may_be_told(queues: Queues, chain: Chain) -> bool:
    """Whether it ends at calls that do not fit, or at few ranks that wait nowhere: both are of their own making."""
    root = chain.roots[0]
    if chain.circle or root.kind not in _NOT_COME:
        return not chain.circle and root.kind is Kind.MISMATCH
    waiting = {lane.rank for _, lane in queues.lanes() if lane.rank in root.awaited and lane.first_open() is not None}
    return len(root.awaited) <= len(root.waiting) and not waiting and not chain.held


def _is_known(found: Finding, chain: Chain) -> bool:
    """Whether the ranks at fault are known, or at least those that have not come."""
    return found.certainty is not Certainty.UNDETERMINED or chain.roots[0].kind in _NOT_COME
