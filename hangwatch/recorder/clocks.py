"""Hosts whose clocks differ: what a clock can explain in the times of two records, and what only another run can.

A collective that completes nowhere before all ranks have enqueued it orders two records without any clock: its end on
one rank comes after its call on the other. One run has one difference of clocks that keeps that order in all calls that
both completed. In another run the same calls take other times, and no one difference fits them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from hangwatch.queues.dates import COPIED_S
from hangwatch.queues.matching import SYNCHRONISING, kind_of
from hangwatch.queues.model import Clock, Communicator, Lane, Queues

CLEAR_NS = 5 * 10**9  # smaller differences change nothing that is told
_MOST_NS = 14 * 3600 * 10**9  # a clock set to the local time of another zone; what is further apart are days
_DRIFT = 1000  # clocks drift apart by less than one part in so many
_ONE_MOMENT = 16  # calls between the moments of two records of one job
_ENOUGH = 8  # calls, at least, that both completed, for a difference that is sure
_STEADY = 10  # times as long as they vary against each other the calls are apart, at least, for the same


@dataclass(frozen=True, slots=True)
class Difference:
    """By how much the clock of one record is ahead of another's; `sure` where many calls agree in it."""

    ns: int
    sure: bool


def difference(queues: Queues, lane: Lane, other: Lane) -> Difference | None:
    """How far the clock of `lane` is ahead, if both may be of one run; None where they cannot, or share no calls."""
    if not _of_one_moment(queues, lane, other):
        return None
    least, most = -(1 << 62), 1 << 62  # what keeps every end behind the calls that it needs
    ends, places = [], {number: place for place, number in enumerate(other.numbers)}
    for at, number in enumerate(lane.numbers):
        if (there := places.get(number)) is None:
            continue
        own, theirs = _tells(queues, lane, at), _tells(queues, other, there)
        most = min(most, lane.ended[at] - other.created[there]) if own else most
        least = max(least, lane.created[at] - other.ended[there]) if theirs else least
        if own and theirs:
            ends.append((lane.ended[at], other.ended[there]))
    if not ends:
        return None
    span = ends[-1][0] - ends[0][0]
    if least > most + span // _DRIFT:
        return None
    found = min(max(int(median(mine - theirs for mine, theirs in ends)), least), most)
    if least <= 0 <= most:
        return Difference(0, sure=True)  # ends that are discovered late look like a clock that is ahead
    if abs(found) > _MOST_NS:
        return None
    if _stood_where_the_other_went_on(queues, lane, other) or _stood_where_the_other_went_on(queues, other, lane):
        return None
    spread = median(abs(mine - theirs - found) for mine, theirs in ends)
    return Difference(found, len(ends) >= _ENOUGH and _STEADY * spread <= span)


def clocks(queues: Queues) -> dict[int, Clock]:
    """The ranks whose clocks are ahead of, or behind, those of most ranks."""
    known = _compared(queues)
    usual = _most_common({rank: each.ns for rank, each in known.items()})
    return {
        rank: Clock(each.ns - usual, each.sure)
        for rank, each in sorted(known.items())
        if abs(each.ns - usual) > CLEAR_NS
    }


def _compared(queues: Queues) -> dict[int, Difference]:
    """The clocks of all ranks that a chain of groups joins, against that of one of them."""
    groups = sorted(queues.communicators, key=lambda group: len(group.lanes), reverse=True)
    known: dict[int, Difference] = {rank: Difference(0, sure=True) for rank in [*groups[0].lanes][:1]} if groups else {}
    before = 0
    while len(known) > before:
        before = len(known)
        for group in groups:
            _compare(queues, group, known)
    return known


def _compare(queues: Queues, group: Communicator, known: dict[int, Difference]) -> None:
    base = next((rank for rank, lane in group.lanes.items() if rank in known and len(lane)), None)
    if base is None:
        return
    for rank, lane in group.lanes.items():
        if rank in known or not len(lane):
            continue
        found = _at_a_glance(queues, lane, group.lanes[base]) or difference(queues, lane, group.lanes[base])
        if found is not None:
            known[rank] = Difference(known[base].ns + found.ns, known[base].sure and found.sure)


def _at_a_glance(queues: Queues, lane: Lane, other: Lane) -> Difference | None:
    """No difference that matters, as nearly always: by the last call alone that both completed."""
    for at in reversed(range(len(lane))):
        if not _tells(queues, lane, at):
            continue
        there = other.places(lane.numbers[at])
        if there and _tells(queues, other, there[-1]):
            near = abs(lane.ended[at] - other.ended[there[-1]]) <= CLEAR_NS
            return Difference(0, sure=True) if near else None
    return None


def _tells(queues: Queues, lane: Lane, place: int) -> bool:
    timed = lane.done(place) and lane.ended[place] and lane.created[place]
    return bool(timed) and kind_of(queues.call(lane, place)) in SYNCHRONISING


def _of_one_moment(queues: Queues, lane: Lane, other: Lane) -> bool:
    """Whether the records end at the same calls, or nearly so: those of another run end anywhere."""
    return all(_completed(queues, one) <= two.enqueued + _ONE_MOMENT for one, two in ((lane, other), (other, lane)))


def _stood_where_the_other_went_on(queues: Queues, lane: Lane, other: Lane) -> bool:
    """Whether a call that the other completed was still open when the record of `lane` was written, long after it.

    By the rank's own clock: its file is of a time long behind the last call, and not of one at which it was copied.
    """
    place, written = lane.first_open(), queues.written.get(lane.rank, 0)
    if lane.rank in queues.assumed:
        return False
    if place is None or not len(lane) or lane.numbers[place] > _completed(queues, other):
        return False
    return CLEAR_NS < written - max(lane.created[-1], lane.completed_at) < COPIED_S * 10**9


def _completed(queues: Queues, lane: Lane) -> int:
    return next((lane.numbers[at] for at in reversed(range(len(lane))) if _tells(queues, lane, at)), -1)


def _most_common(found: Mapping[int, int]) -> int:
    """The clock of most ranks; of the lowest ones where as many have another."""
    sides: list[list[int]] = []  # clocks that are alike
    for ns in found.values():
        side = next((side for side in sides if abs(side[0] - ns) <= CLEAR_NS), None)
        if side is None:
            sides.append([ns])
        else:
            side.append(ns)
    most = max(sides, key=len, default=[0])
    return int(median(most))
