"""Sends and receives that do not complete: which have no counterpart, and which stand behind others."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangwatch.ranks.tensors import elements

from .model import RETIRED, STARTED, STATE, Call, Communicator, Lane, Queues
from .stuck import Kind, Stuck

_COMMON = 3  # calls under the same numbers on both sides that are no chance


@dataclass(slots=True)
class _Open:
    """A send or receive that is not complete, of `rank` with `peer`."""

    rank: int
    peer: int
    send: bool
    number: int
    call: Call
    order: int
    created: int
    expired: bool
    started: bool
    place: int  # among all calls of the rank with that peer in that direction


@dataclass(slots=True)
class _Side:
    """What one rank has of sends and receives in a group, by peer and direction; `issued` counts all of them."""

    open: list[_Open] = field(default_factory=list)
    first: dict[tuple[int, bool], int] = field(default_factory=dict)  # place of the first open one
    issued: Counter[tuple[int, bool]] = field(default_factory=Counter)
    numbers: dict[tuple[int, bool], list[int]] = field(default_factory=dict)  # of all of them, as torch counts
    comparable: dict[tuple[int, bool], bool] = field(default_factory=dict)  # see `_countable`
    lost: bool = False  # calls are no longer recorded, so that counting tells nothing


def stuck_pairs(queues: Queues) -> Iterator[Stuck]:
    """For each group and rank the first send or receive that waits for its peer."""
    for group in queues.communicators:
        sides = {rank: _side(queues, group, lane) for rank, lane in group.peers.items()}
        for rank, side in sides.items():
            for peer in dict.fromkeys(each.peer for each in side.open):
                other = sides.get(peer, _Side())
                own = [each for each in side.open if each.peer == peer and not _done_there(each, side, other)]
                theirs = [each for each in other.open if each.peer == rank and not _done_there(each, other, side)]
                if own and (found := _judged(queues, group, own, theirs)) is not None:
                    found.counted = _countable(own[0], side, other)
                    yield found


def older_senders(queues: Queues) -> frozenset[int]:
    """The ranks whose records end before sends that their peers have received: they went on.

    A send may end before its receive is enqueued, and a receive never before its send.
    """
    found = set()
    for group in queues.communicators:
        sides = {rank: _side(queues, group, lane) for rank, lane in group.peers.items()}
        for rank, side in sides.items():
            for (peer, send), issued in side.issued.items():
                other = sides.get(peer)
                if not send and other is not None and _received_more(rank, peer, issued, side, other):
                    found.add(peer)
    return frozenset(found)


def _received_more(rank: int, peer: int, issued: int, own: _Side, other: _Side) -> bool:
    """Whether `rank` has received more from `peer` than the record of the peer has sends to it."""
    done = own.first.get((peer, False), issued)
    if not (own.lost or other.lost):
        return done > other.issued[rank, True]
    mine, theirs = own.numbers[peer, False], other.numbers.get((rank, True), [])
    return bool(done and theirs) and _alike(mine, theirs) and mine[done - 1] > theirs[-1]


def _countable(one: _Open, own: _Side, other: _Side) -> bool:
    """Whether counting, or torch's numbers, tell which call of the peer meets which of this rank."""
    if not (own.lost or other.lost):
        return True
    way = (one.peer, one.send)
    if way not in own.comparable:
        theirs = other.numbers.get((one.rank, not one.send))
        own.comparable[way] = theirs is not None and _alike(own.numbers[way], theirs)
    return own.comparable[way]


def _done_there(one: _Open, own: _Side, other: _Side) -> bool:
    """The peer has completed the counterpart: only the rest of the batch, or the moment of the dump, keeps it open.

    The first send to a peer meets the peer's first receive from this rank, the second one the second. Where older calls
    are lost, torch's numbers tell, if both ranks have so far made such calls under the same numbers.
    """
    theirs = (one.rank, not one.send)
    if not _countable(one, own, other):
        return False
    place = one.place
    if own.lost or other.lost:
        known = other.numbers[theirs]
        place = bisect_left(known, one.number)
        place = place if known[place : place + 1] == [one.number] else len(known)
    return place < other.issued[theirs] and other.first.get(theirs, place + 1) > place


def _alike(mine: list[int], theirs: list[int]) -> bool:
    """Whether two ranks gave the same numbers to all calls that both records hold, and that these are several."""
    low, high = max(mine[0], theirs[0]), min(mine[-1], theirs[-1])
    common = [number for number in mine if low <= number <= high]
    return len(common) >= _COMMON and common == [number for number in theirs if low <= number <= high]


def _side(queues: Queues, group: Communicator, lane: Lane) -> _Side:
    side = _Side(lost=lane.lost)
    for place in range(len(lane)):
        call = queues.call(lane, place)
        if call.source is None or call.target is None:
            continue
        send = call.op == "send"
        other = call.target if send else call.source
        peer = group.members[other] if other < len(group.members) else other
        if not lane.done(place):
            side.first.setdefault((peer, send), side.issued[peer, send])
            side.open.append(_opened(lane, place, call, peer, side.issued[peer, send]))
        side.issued[peer, send] += 1
        side.numbers.setdefault((peer, send), []).append(lane.numbers[place])
    return side


def _opened(lane: Lane, place: int, call: Call, peer: int, before: int) -> _Open:
    return _Open(
        lane.rank,
        peer,
        call.op == "send",
        lane.numbers[place],
        call,
        lane.order[place],
        lane.created[place],
        bool(lane.states[place] & RETIRED),
        lane.states[place] & STATE >= STARTED,
        before,
    )


def _judged(queues: Queues, group: Communicator, own: list[_Open], theirs: list[_Open]) -> Stuck | None:
    """The first call of `own`, against what the peer has open with this rank."""
    first = own[0]
    partner = next((each for each in theirs if each.send != first.send), None)
    found = Stuck(
        Kind.PEER,
        group,
        first.number,
        (first.rank,),
        (first.peer,),
        calls={first.rank: first.call},
        order={first.rank: first.order},
        created={first.rank: first.created},
        expired=first.expired,
        peers=(first.rank, first.peer),
        batch={first.rank: first.number},
    )
    if partner is None:
        return found
    if not fits(first.call, partner.call):
        found.kind, found.awaited, found.waiting = Kind.MISMATCH, (), (first.rank, first.peer)
        found.calls[first.peer], found.order[first.peer] = partner.call, partner.order
        found.created[first.peer], found.batch[first.peer] = partner.created, partner.number
        found.why = "the send and the receive differ in size or type"
        return found if first.send else None  # told once
    ahead = theirs[0]
    if ahead is partner or ahead.number == partner.number:  # the calls of its batch are issued together
        return _met(queues, found, first, partner)
    found.order[first.peer] = partner.order
    return found


def _met(queues: Queues, found: Stuck, own: _Open, theirs: _Open) -> Stuck | None:
    """Both have enqueued it: on its way, unless one device is held by a call before it on its rank.

    Without start events only the order tells what may hold it up.
    """
    found.calls[theirs.rank], found.order[theirs.rank] = theirs.call, theirs.order
    found.created[theirs.rank], found.batch[theirs.rank] = theirs.created, theirs.number
    if own.started and theirs.started and own.send:
        found.kind, found.awaited, found.waiting = Kind.WIRE, (), (own.rank, theirs.rank)
    elif own.started and not theirs.started and theirs.rank not in queues.untimed:
        found.kind = Kind.HELD
    elif own.send and (not queues.timed or queues.untimed & {own.rank, theirs.rank}):
        found.kind, found.awaited, found.waiting = Kind.QUEUED, (), (own.rank, theirs.rank)
    else:
        return None
    return found


def fits(one: Call, other: Call) -> bool:
    send, receive = (one, other) if one.op == "send" else (other, one)
    given, made = elements(send.inputs), elements(receive.outputs)
    if given is not None and made is not None and given != made:
        return False
    return not send.input_dtypes or not receive.output_dtypes or send.input_dtypes == receive.output_dtypes
