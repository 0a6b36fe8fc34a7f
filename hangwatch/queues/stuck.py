"""Where communicators stand: for each the first collective that is not complete, and what the ranks show there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from enum import StrEnum

from hangwatch.model import Frame

from .dates import copied_s
from .matching import SYNCHRONISING, Shape, kind_of, malformed, roots_apart, sides, unbalanced
from .model import COMPLETED, RETIRED, STARTED, STATE, Call, Communicator, Lane, Queues
from .states import running

HALF_DONE_S = 30.0  # after it was complete on some ranks; the clocks of nodes differ, and torch looks now and then
_EXCHANGES_BEFORE = 64  # numbers before a call


class Kind(StrEnum):
    """What the ranks show at the first collective that is not complete."""

    MISMATCH = "mismatch"  # they called different things
    ABSENT = "absent"  # some have not enqueued it
    STALE = "stale"  # some records are older than what the others have completed
    MISSING = "missing"  # all that left a record have enqueued it
    HELD = "held"  # all have enqueued it, some devices have not started it
    WIRE = "wire"  # all devices have started it
    HALF = "half"  # some devices have completed it, and others not long after that
    QUEUED = "queued"  # all have enqueued it, and no device is known to have started it
    PEER = "peer"  # a send or receive without its counterpart


@dataclass(slots=True)
class Stuck:
    """A collective, or point-to-point call, that does not complete.

    `waiting` have enqueued it and not completed it; `awaited` are the ranks that it waits for. `order` is the place of
    the call among all calls of a rank.
    """

    kind: Kind
    group: Communicator
    number: int
    waiting: tuple[int, ...]
    awaited: tuple[int, ...] = ()
    calls: dict[int, Call] = field(default_factory=dict)
    order: dict[int, int] = field(default_factory=dict)
    created: dict[int, int] = field(default_factory=dict)
    sides: dict[Shape, list[int]] = field(default_factory=dict)
    why: str = ""  # of a mismatch that no comparison of two ranks shows
    expired: bool = False  # torch gave one of the calls up: it is retired and not complete
    peers: tuple[int, ...] = ()  # a point-to-point pair
    counted: bool = True  # of a pair: which call of one rank meets which of the other is known
    begun: tuple[int, ...] = ()  # those waiting whose device is known to have started it
    batch: dict[int, int] = field(default_factory=dict)  # of a pair: each rank's number, which coalesced calls share
    kept: tuple[int, ...] = ()  # those that have completed it, and wait in the next call of that communicator

    @property
    def all_came(self) -> bool:
        """All of its ranks are known to have enqueued it: without start events no more may be known of the group."""
        known = not (self.peers or self.group.guessed)
        return self.kind in (Kind.MISMATCH, Kind.WIRE, Kind.HELD) or (self.kind is Kind.QUEUED and known)

    @property
    def call(self) -> Call | None:
        """The call of most waiting ranks; None where no entry of it is left."""
        found = [self.calls[rank] for rank in self.waiting if rank in self.calls] or list(self.calls.values())
        return max(found, key=found.count, default=None) if len(found) < 64 else found[0]

    def at_lines(self, ranks: Iterable[int]) -> tuple[tuple[int, Frame | None], ...]:
        """Ranks with the line from which each made the call, where that is recorded."""
        return tuple((rank, self.calls[rank].where if rank in self.calls else None) for rank in ranks)

    def lane(self, rank: int) -> Lane | None:
        """The queue of a rank that has the call, or lacks it."""
        return (self.group.peers if self.peers else self.group.lanes).get(rank)


def stuck_collectives(queues: Queues) -> Iterator[Stuck]:
    """The first collective that is not complete, of every communicator that has one."""
    for group in queues.communicators:
        if (found := _front(queues, group)) is not None:
            yield found


def floor_of(queues: Queues, group: Communicator) -> int:
    """The highest number that is complete on some rank and that completes nowhere before all ranks have enqueued it."""
    return max((_synchronised(queues, lane) for lane in group.lanes.values()), default=-1)


def older_records(queues: Queues) -> frozenset[int]:
    """The ranks whose records end before a call that completes nowhere before they have enqueued it: they went on."""
    floors = ((group, floor_of(queues, group)) for group in queues.communicators)
    return frozenset(
        rank for group, floor in floors for rank, lane in group.lanes.items() if lane.known and lane.enqueued < floor
    )


def _synchronised(queues: Queues, lane: Lane) -> int:
    end = lane.first_open()
    for place in reversed(range(len(lane) if end is None else end)):
        if kind_of(queues.call(lane, place)) in SYNCHRONISING:
            return lane.numbers[place]
    return -1


def _front(queues: Queues, group: Communicator) -> Stuck | None:
    floor = floor_of(queues, group)
    if (unfit := _unfit_below(queues, group, floor)) is not None:
        return unfit
    if (half := _half_done(queues, group, floor)) is not None:
        return half
    opened = [number for lane in group.lanes.values() if (number := _first_above(lane, floor)) is not None]
    if not opened:
        return None
    number = min(opened)
    number = min([number, *(lost for lost in _lost_before(group, number) if _waited_for(group, lost))])
    states = {rank: _state(lane, number) for rank, lane in group.lanes.items()}
    found = Stuck(
        Kind.QUEUED,
        group,
        number,
        tuple(rank for rank, state in states.items() if state is not None and state & STATE != COMPLETED),
    )
    for rank, lane in group.lanes.items():
        _enter(queues, found, rank, lane)
    _compare(queues, found)
    _classify(queues, found, floor, states)
    return found


def _unfit_below(queues: Queues, group: Communicator, floor: int) -> Stuck | None:
    """An exchange that others completed and that does not fit, where ranks whose hosts went on stand: they get less.

    One like it has to have fitted before: else the sizes on record are not those that are exchanged.
    """
    ahead = (lane for lane in group.lanes.values() if lane.known and lane.enqueued >= floor)
    opened = [lane.numbers[place] for lane in ahead if (place := lane.first_open()) is not None]
    number = min(opened, default=floor + 1)
    if number > floor:
        return None
    waiting = tuple(
        rank for rank, lane in group.lanes.items() if (state := lane.state(number)) is not None and not _done(state)
    )
    found = Stuck(Kind.QUEUED, group, number, waiting)
    for rank, lane in group.lanes.items():
        _enter(queues, found, rank, lane)
    _compare(queues, found)
    exchange = bool(found.why) and all(kind_of(call) == "all_to_all" for call in found.calls.values())
    return found if exchange and _fitted_before(queues, group, found) else None


def _half_done(queues: Queues, group: Communicator, floor: int) -> Stuck | None:
    """The last call that is complete anywhere, where ranks had it open still long after others had completed it.

    All had enqueued it, and none has completed a later one: a record that is only older shows less than that.
    """
    waiting, ended = [], 0
    for rank, lane in group.lanes.items():
        places, state = lane.places(floor), lane.state(floor)
        if state is None or not places:
            continue
        if _done(state):
            ended = max(ended, max(lane.ended[place] for place in places))
        elif lane.first_open() == places.start:
            waiting.append(rank)
    stood = {
        rank: (queues.written.get(rank, 0) - ended) / 1e9 for rank in waiting if ended and rank not in queues.assumed
    }
    late = [rank for rank in waiting if HALF_DONE_S < stood.get(rank, 0.0) < copied_s(queues, waiting)]
    last = max(
        (lane.numbers[place] for lane in group.lanes.values() if (place := _last_done(lane)) is not None), default=-1
    )
    known = [lane for lane in group.lanes.values() if lane.known]
    ahead = [lane.rank for lane in known if lane.enqueued > floor]
    older = any(lane.enqueued < floor for lane in known)
    if not late or len(late) < len(waiting) or last > floor or older or (ahead and not set(waiting) <= set(ahead)):
        return None  # where some have not enqueued the next call, which others have, it is that which is missing
    found = Stuck(Kind.QUEUED, group, floor, tuple(waiting))
    for rank, lane in group.lanes.items():
        _enter(queues, found, rank, lane)
    _compare(queues, found)
    for rank, lane in group.lanes.items():
        if rank not in waiting and (place := lane.first_open()) is not None:
            found.kept += (rank,)
            found.order[rank], found.created[rank] = lane.order[place], lane.created[place]
    if found.kind is not Kind.MISMATCH:
        found.kind = Kind.HALF
        found.begun = tuple(rank for rank in waiting if (group.lanes[rank].state(floor) or 0) >= STARTED)
    return found


def _last_done(lane: Lane) -> int | None:
    return next((place for place in reversed(range(len(lane))) if lane.done(place)), None)


def _fitted_before(queues: Queues, group: Communicator, found: Stuck) -> bool:
    """Whether the last such exchanges before it, from the same lines, sent as much as was expected."""
    places = {call.where for call in found.calls.values()}
    for number in range(found.number - 1, max(found.number - _EXCHANGES_BEFORE, 0), -1):
        calls = {rank: queues.call(lane, at[0]) for rank, lane in group.lanes.items() if (at := lane.places(number))}
        if len(calls) == len(group.members) and {call.where for call in calls.values()} <= places:
            return not unbalanced(calls, group)
    return False


def _done(state: int) -> bool:
    return state & STATE == COMPLETED


def _lost_before(group: Communicator, number: int) -> Iterator[int]:
    """Lower numbers that are incomplete, where the rings no longer hold them.

    A rank that has all of its calls complete and ends below what the others still record is absent from its next one.
    """
    lanes = [lane for lane in group.lanes.values() if lane.known]
    ahead = [lane for lane in lanes if lane.enqueued >= number]
    if not all(len(lane) and lane.lost and lane.numbers[0] >= number for lane in ahead):
        return
    yield from (lane.completed + 1 for lane in ahead if 0 < lane.completed < number)
    yield from (lane.enqueued + 1 for lane in lanes if 0 < lane.enqueued < number)


def _waited_for(group: Communicator, number: int) -> bool:
    """Whether some rank has that call open: what is complete on all that came to it, they do not wait for."""
    states = (_state(lane, number) for lane in group.lanes.values())
    return any(state is not None and state & STATE != COMPLETED for state in states)


def _first_above(lane: Lane, floor: int) -> int | None:
    place = lane.first_open()
    while place is not None and place < len(lane):
        if lane.numbers[place] > floor and not lane.done(place):
            return lane.numbers[place]
        place += 1
    if not len(lane) and lane.known and lane.enqueued > max(lane.completed, floor, 0):
        return max(lane.completed, floor, 0) + 1
    return None


def _state(lane: Lane, number: int) -> int | None:
    """The state of that number, None where it is not enqueued; an entry that is lost was enqueued at least."""
    state = lane.state(number)
    if state is None and lane.known and lane.enqueued >= number:
        older = len(lane) and lane.numbers[0] > number and lane.done(0)
        return COMPLETED if lane.completed >= number or older else 0
    return state


def _enter(queues: Queues, found: Stuck, rank: int, lane: Lane) -> None:
    places = lane.places(found.number)
    if not places:
        return
    place = next((each for each in places if not lane.done(each)), places[0])
    found.calls[rank] = queues.call(lane, place)
    found.order[rank], found.created[rank] = lane.order[place], lane.created[place]
    found.expired = found.expired or any(
        lane.states[each] & RETIRED and lane.states[each] & STATE != COMPLETED for each in places
    )


def _compare(queues: Queues, found: Stuck) -> None:
    """Whether the calls under the number agree, each of those that were coalesced with its counterpart."""
    bundles = {
        rank: [queues.call(lane, place) for place in lane.places(found.number)]
        for rank, lane in found.group.lanes.items()
        if lane.places(found.number)
    }
    for place in range(max(map(len, bundles.values()), default=0)):
        calls = {rank: bundle[place] for rank, bundle in bundles.items() if place < len(bundle)}
        differing, why = disagreement(calls, found.group)
        if differing or why:
            found.kind, found.sides, found.why = Kind.MISMATCH, differing, why
            found.calls.update(calls)
            return


def disagreement(calls: dict[int, Call], group: Communicator) -> tuple[dict[Shape, list[int]], str]:
    """The sides of a pairing that does not fit, and why where it is not a matter of sides; nothing where it fits."""
    distinct = set(calls.values())
    if len(distinct) > 1:
        differing = sides(calls)
        if len(differing) > 1:
            return differing, ""
    why = next(filter(None, (malformed(call, group) for call in distinct)), "")
    return {}, why or unbalanced(calls, group) or roots_apart(calls, group)


def _classify(queues: Queues, found: Stuck, floor: int, states: dict[int, int | None]) -> None:
    group = found.group
    absent = [rank for rank, lane in group.lanes.items() if lane.known and states[rank] is None]
    stale = [rank for rank in absent if group.lanes[rank].enqueued < floor]
    missing = [rank for rank in group.members if rank not in group.lanes or not group.lanes[rank].known]
    if found.kind is Kind.MISMATCH:
        return
    if absent := [rank for rank in absent if rank not in stale]:
        found.kind, found.awaited = Kind.ABSENT, tuple(sorted(absent))
    elif stale:
        found.kind, found.awaited = Kind.STALE, tuple(sorted(stale))
    elif missing and not (queues.timed and _held(found, _begun(states), queues.untimed)):
        found.kind, found.awaited = Kind.MISSING, tuple(sorted(missing))
    elif queues.timed:
        _by_start(found, _begun(states), queues.untimed)
    elif set(found.waiting) <= (told := running(queues, group)).keys():
        _by_start(found, [rank for rank, runs in told.items() if runs])


def _begun(states: dict[int, int | None]) -> list[int]:
    return [rank for rank, state in states.items() if state is not None and state & STATE >= STARTED]


def _held(found: Stuck, begun: list[int], untimed: Set[int]) -> list[int]:
    """Devices that have not started what others have: that is their own, whatever a rank without a record does.

    Of a rank without start events it is not known whether its device has started anything.
    """
    return sorted(set(found.waiting) - set(begun) - untimed) if begun else []


def _by_start(found: Stuck, begun: list[int], untimed: Set[int] = frozenset()) -> None:
    found.begun = tuple(rank for rank in found.waiting if rank in begun)
    if held := _held(found, begun, untimed):
        found.kind, found.awaited = Kind.HELD, tuple(held)
    elif set(found.waiting) <= set(begun):
        found.kind = Kind.WIRE
