"""Signs, in the records alone, of a job that moved when they were written; for files whose dates do not tell that.

A record is one moment. Where it does not say for how long a call had been open, a job that stands may leave the same
one as a job that is well. Some can only come from a job in motion, or are as common in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from hangwatch import words
from hangwatch.ranks.sides import spread

from .model import Lane, Queues
from .moment import by_what, is_undated, is_young, open_s, since_s
from .names import ranks
from .stuck import Kind, Stuck, floor_of
from .turns import OFTEN

_ONE_MOMENT = 64  # calls between the moments of two records of one job; a record further behind is an older one
_LAGGING = 2  # ranks, at least: a single record may be older than the others
_OF_RANKS = 4  # and one rank in so many
_OF_MOST = 2  # where a rank is awaited: a node's records may be older than those of the ranks that wait
_MISSED = 3  # ranks, at least, that are awaited in messages at once: pairs of a pipeline wait for each other anyway
_OF_ALL = 8  # and one rank in so many
_ROLES = 2  # of ranks that stand each at a place of its own
_RECENT = 32  # calls of the same place that are looked at
_TIMES_LATE = 5  # of them, at least, for a habit where nothing tells for how long the call has been open
_AS_LONG = 4  # times as long as ever before is no habit: others have recorded events since then
_GRAIN_S = 0.2  # torch looks for completions ten times a second: two looks
_NO_DATE = "whether it stood still, these records do not tell"


@dataclass(frozen=True)
class Motion:
    """What the records show of a job's motion; `found` are the calls that are open."""

    queues: Queues
    found: Sequence[Stuck]

    def moved(self, root: Stuck) -> bool:
        """Many ranks have calls open that others have seen complete; most, where a rank is awaited: it is that one's
        record which counts."""
        return is_undated(self.queues, root) and self._lag(_OF_MOST if root.awaited else _OF_RANKS)

    def may_go_on(self, root: Stuck) -> str:
        """Why a rank may still be at work, so that none is to blame yet; "" where nothing says so."""
        if is_young(self.queues, root):
            since = words.duration(open_s(self.queues, root) or 0.0)
            return f"{by_what(self.queues, root)}, that call had been open for {since}: the job may still go on"
        if not is_undated(self.queues, root):
            return ""
        if older := self._older(root):
            have = words.verb(len(older), "has", "have")
            return f"{ranks(older)} {have} calls open that others have seen complete: that record is older; {_NO_DATE}"
        if _hosts_apart(root):
            return f"the hosts had enqueued unlike numbers of calls, as those of a job that moves: {_NO_DATE}"
        if root.kind is Kind.HELD and root.peers:
            return f"the device of a stage that computes shows the same: {_NO_DATE}"
        if root.kind is Kind.HELD and 2 * len(root.awaited) > len(root.group.members):
            return f"most of the devices have something before it, as those that still compute: {_NO_DATE}"
        if _not_begun(self.queues, root):
            return f"its devices have start events and none has begun it, as those that still compute: {_NO_DATE}"
        if root.kind is Kind.WIRE and _no_longer_than_before(self.queues, root):
            return f"at the last event on record it had been open for no longer than such calls before: {_NO_DATE}"
        if root.kind is Kind.QUEUED and root.all_came:
            return f"all of its ranks had come to that call alike, as those of a job that moves: {_NO_DATE}"
        if self._lag(_OF_RANKS):
            return f"many ranks had calls open that others had seen complete, as in a job that moves: {_NO_DATE}"
        if root.kind is Kind.PEER and self._idle:
            return f"{ranks(self._idle)} are awaited at once and wait for nothing, as ranks at work: {_NO_DATE}"
        return ""

    def _lag(self, share: int) -> bool:
        return self._lagging >= max(_LAGGING, len(self.queues.ranks) / share)

    @cached_property
    def _lagging(self) -> int:
        """How many ranks have a call open that was complete by then: another has completed a later one with them.

        Or have not enqueued one that was complete: their records are older.
        """
        floors = ((group, floor_of(self.queues, group)) for group in self.queues.communicators)
        return len({rank for group, floor in floors for rank, lane in group.lanes.items() if _lags(lane, floor)})

    def _older(self, root: Stuck) -> list[int]:
        """The awaited ranks, where each has a call open in the group that is complete by the records of the others."""
        lanes, floor = root.group.lanes, floor_of(self.queues, root.group)
        lag = [rank for rank in root.awaited if rank in lanes and _lags(lanes[rank], floor)]
        return lag if not root.peers and len(lag) == len(root.awaited) else []

    @cached_property
    def _idle(self) -> list[int]:
        """The ranks that others await in messages and that have nothing open themselves, if they are many.

        What keeps one rank from its messages keeps few: where a large part of a job is missed at once, it is at work.
        """
        awaited = {rank for each in self.found if each.kind is Kind.PEER for rank in each.awaited}
        busy = {lane.rank for _, lane in self.queues.lanes() if lane.rank in awaited and lane.first_open() is not None}
        idle = sorted(awaited - busy)
        return idle if len(idle) >= max(_MISSED, len(self.queues.ranks) / _OF_ALL) else []


def _lags(lane: Lane, floor: int) -> bool:
    if lane.known and floor - _ONE_MOMENT <= lane.enqueued < floor:
        return True
    place = lane.first_open()
    return place is not None and lane.numbers[place] <= floor <= min(lane.enqueued, lane.numbers[place] + _ONE_MOMENT)


def _hosts_apart(one: Stuck) -> bool:
    """The hosts have enqueued unlike numbers of calls behind one to which all came.

    Where they are of two kinds, one rank may wait for its device earlier than the others, as to log its loss.
    """
    ahead = {lane.enqueued for lane in one.group.lanes.values() if lane.known}
    return one.kind in (Kind.QUEUED, Kind.WIRE) and not one.peers and len(ahead) > _ROLES


def _not_begun(queues: Queues, one: Stuck) -> bool:
    """All came to it, all of them have start events, and no device has begun it: all have something before it."""
    return one.kind is Kind.QUEUED and queues.timed and not one.begun and not queues.untimed & set(one.waiting)


def _no_longer_than_before(queues: Queues, one: Stuck) -> bool:
    """The call had been open for as long as earlier ones of that queue took, when the last event was recorded."""
    lanes = [lane for rank in one.waiting if (lane := one.lane(rank)) is not None]
    took = [_took_s(lane, number) for lane in lanes[:1] for number in lane.numbers[-2 * _RECENT :]]
    return bool(known := [each for each in took if each is not None]) and since_s(queues, one) <= max(known)


@dataclass(frozen=True, slots=True)
class Lateness:
    """In `late` of `looked_at` earlier calls of one place the others waited, for `typical_s` seconds in the median."""

    late: int
    looked_at: int
    typical_s: float


def late_by_habit(queues: Queues, one: Stuck) -> Lateness | None:
    """How often the awaited ranks were the last before, in the same call; None where they were not, most of the times.

    Each rank's waits are read from its own clock: from when it made a call to when its end was discovered. Where the
    dates of the files tell for how long the call had been open, that has to be no longer than in an earlier round.
    """
    lanes = one.group.lanes
    waiting = [lanes[rank] for rank in spread(one.waiting) if rank in one.calls]
    awaited = [lanes[rank] for rank in spread(one.awaited) if rank in lanes]
    if not waiting or not awaited:
        return None
    extra = []
    for number in _of_that_place(queues, one, waiting[0]):
        theirs, own = ([_took_s(lane, number) for lane in side] for side in (waiting, awaited))
        known = [each for each in theirs if each is not None]
        if known and None not in own:
            extra.append(median(known) - max(each for each in own if each is not None))
    late = [seconds for seconds in extra if seconds >= _GRAIN_S]
    stood = open_s(queues, one)
    times = _TIMES_LATE if stood is None else OFTEN
    if len(late) < times or 4 * len(late) < 3 * len(extra):
        return None
    if (since_s(queues, one) > _AS_LONG * max(late)) if stood is None else (stood > max(late)):
        return None
    return Lateness(len(late), len(extra), median(late))


def _of_that_place(queues: Queues, one: Stuck, lane: Lane) -> list[int]:
    """The numbers of the last calls before it that are the same as it."""
    call = queues.calls.index(one.calls[lane.rank])
    same = (n for n, known in enumerate(lane.calls) if known == call and lane.numbers[n] < one.number)
    return [lane.numbers[place] for place in same][-_RECENT:]


def _took_s(lane: Lane, number: int) -> float | None:
    """From when a rank made a call to when its end was discovered; None where either is not recorded."""
    places = lane.places(number)
    if not places or not lane.created[places[-1]] or not lane.ended[places[-1]]:
        return None
    return (lane.ended[places[-1]] - lane.created[places[-1]]) / 1e9
