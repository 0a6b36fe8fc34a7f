"""Dumps of different runs in one folder: torch writes to the same place in each, and a frozen rank writes none.

A collective that completes nowhere before all ranks have enqueued it cannot be complete before another rank's call.
"""

from __future__ import annotations

from heapq import nlargest

from hangwatch.queues.matching import SYNCHRONISING, kind_of
from hangwatch.queues.model import Communicator, Lane, Queues

from .clocks import difference

APART_NS = 60 * 10**9  # clocks of two nodes may differ
TRIED = 8  # records of a group, the latest ones, to which each is compared


def of_earlier_runs(queues: Queues) -> tuple[int, ...]:
    """The ranks whose record ended before others made the calls that it has as complete, or is of another world."""
    found = _of_another_world(queues)
    for group in queues.communicators:
        latest = nlargest(TRIED, filter(len, group.lanes.values()), key=lambda lane: lane.created[-1])
        for rank, lane in group.lanes.items():
            later = [other for other in latest if other.created[-1] > lane.completed_at + APART_NS > APART_NS]
            number = _completed_by_all(queues, lane) if later else None
            if number is None or not any(_made_later(other, number, lane.completed_at) for other in later):
                continue
            if all(difference(queues, lane, other) is None for other in later):  # no clock explains it
                found.add(rank)
    return tuple(sorted(found))


def _of_another_world(queues: Queues) -> set[int]:
    """Ranks whose group of all ranks is another one than that in which ranks of it have later calls."""
    worlds = {id(group): _last_call(group) for group in queues.communicators if group.default and group.lanes}
    latest = max(worlds.values(), default=0)
    newest = next((group for group in queues.communicators if worlds.get(id(group)) == latest > 0), None)
    if newest is None:
        return set()
    older = (group for group in queues.communicators if id(group) in worlds and group is not newest)
    return {rank for group in older if newest.lanes.keys() & set(group.members) for rank in group.lanes}


def _last_call(group: Communicator) -> int:
    return max((lane.created[-1] for lane in group.lanes.values() if len(lane)), default=0)


def _completed_by_all(queues: Queues, lane: Lane) -> int | None:
    """The last number that is complete, and that is so only where all ranks came."""
    places = (place for place in reversed(range(len(lane))) if lane.done(place))
    return next((lane.numbers[place] for place in places if kind_of(queues.call(lane, place)) in SYNCHRONISING), None)


def _made_later(lane: Lane, number: int, completed_at: int) -> bool:
    """Whether a rank made that call, or one before it, when the other had it as complete already."""
    place = next((place for place in reversed(range(len(lane))) if lane.numbers[place] <= number), None)
    return place is not None and lane.created[place] > completed_at + APART_NS
