"""Dumps that are hours older than the others: of another run, or of an earlier moment, so that they prove nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from hangwatch import words
from hangwatch.model import Certainty

from .finding import Finding, records_of
from .model import Queues

_OLD_S = 3600.0  # longer than torch waits, so that the records of one hang are not so far apart


def older(queues: Queues) -> dict[int, float]:
    """By how many seconds the records of ranks are older than most: by their files, or by their last events."""
    if queues.live or queues.record != "dump" or len(queues.ranks) < 3:
        return {}
    found: dict[int, float] = {}
    events = {rank: _last_event(queues, rank) for rank in queues.ranks}
    for times in ({rank: queues.written.get(rank, 0) for rank in queues.ranks}, events):
        if all(times.values()):
            usual = median(times.values())
            found |= {rank: (usual - at) / 1e9 for rank, at in times.items() if (usual - at) / 1e9 > _OLD_S}
    return found if 2 * len(found) < len(queues.ranks) else {}


def told(queues: Queues) -> Iterator[str]:
    """the dump of rank 3 is 2 h 0 min older than most: ..., a sentence for each age."""
    alike: dict[str, list[int]] = {}
    for rank, seconds in sorted(older(queues).items()):
        alike.setdefault(words.duration(seconds), []).append(rank)
    for age, who in alike.items():
        are, it = words.verb(len(who), "is", "are"), words.verb(len(who), "it", "they")
        yield f"{records_of(queues, who)} {are} {age} older than most: {it} may be of another run or an earlier moment"


def weighed(queues: Queues, found: Finding) -> Finding:
    """The finding, undetermined where it blames a rank whose record is so old."""
    if {rank for rank, _ in found.culprits}.isdisjoint(older(queues)):
        return found
    return replace(found, certainty=Certainty.UNDETERMINED)


def _last_event(queues: Queues, rank: int) -> int:
    lanes = (lane for _, lane in queues.lanes_of(rank) if len(lane))
    return max((max(lane.created[-1], lane.completed_at) for lane in lanes), default=0)
