"""Calls that completed and did not fit all the same, and other remarks on records in which nothing is stuck."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from hangwatch import words
from hangwatch.ranks.tensors import elements

from .matching import Shape, kind_of, shape
from .model import Call, Communicator, Lane, Queues
from .names import named, ranks, say
from .stuck import disagreement, floor_of


@dataclass(frozen=True, slots=True)
class Meeting:
    """Calls under one number, each of those that were coalesced with its counterpart; `sides` or `why` do not fit."""

    group: Communicator
    number: int
    calls: dict[int, Call]
    sides: dict[Shape, list[int]]
    why: str

    @property
    def uneven(self) -> bool:
        """An all_to_all of all members in which a rank sends another number of elements than it receives."""
        if set(self.calls) != set(self.group.members):
            return False
        exchanged = (each for each in self.calls.values() if kind_of(each) == "all_to_all")
        return any(elements(each.inputs) != elements(each.outputs) for each in exchanged)


def unfit(queues: Queues) -> Meeting | None:
    """The first completed pairing of calls that do not fit; None where all do."""
    tokens: dict[Shape, int] = {}
    token = array("l", (tokens.setdefault(shape(call), len(tokens)) for call in queues.calls))
    for group in queues.communicators:
        met = (_met(queues, group, number, place) for number, place in _suspects(group, token))
        if (found := _first_unfit(met)) is not None:
            return found
    return None


def _first_unfit(met: Iterator[Meeting]) -> Meeting | None:
    """The first that does not fit; by its totals alone only where those of another such exchange fit.

    Totals that never fit are no fault of one call: the sizes on record are not those that were exchanged.
    """
    by_totals: Meeting | None = None
    fits = False
    for each in met:
        if each.sides:
            return each
        fits = fits or (not each.why and each.uneven)
        if by_totals is None and each.why:
            by_totals = each
        if by_totals is not None and fits:
            return by_totals
    return None


def _met(queues: Queues, group: Communicator, number: int, place: int) -> Meeting:
    calls = _paired(queues, group, number, place)
    return Meeting(group, number, calls, *disagreement(calls, group))


def _suspects(group: Communicator, token: array[int]) -> Iterator[tuple[int, int]]:
    """(number, place among those coalesced under it) where ranks differ, and one of each call where they do not."""
    lanes = [lane for lane in group.lanes.values() if len(lane)]
    if not lanes:
        return
    start = max(lane.numbers[0] for lane in lanes)
    first = min(lanes, key=len)
    usual = _row(first, start, token)
    known: set[int] = set()
    places: dict[int, None] = {}
    for lane in lanes:
        row = _row(lane, start, token)
        if row[: len(usual)] == usual:
            continue
        for place, (one, other) in enumerate(zip(row, usual, strict=False)):
            if one != other:
                places[place] = None
    begin = first.places(start).start
    for place, index in enumerate(first.calls[begin:]):
        if place in places or index not in known:
            known.add(index)
            number = first.numbers[begin + place]
            yield number, begin + place - first.places(number).start


def _row(lane: Lane, start: int, token: array[int]) -> array[int]:
    return array("l", map(token.__getitem__, lane.calls[lane.places(start).start :]))


def _paired(queues: Queues, group: Communicator, number: int, place: int) -> dict[int, Call]:
    found = {}
    for rank, lane in group.lanes.items():
        places = lane.places(number)
        if place < len(places):
            found[rank] = queues.call(lane, places[place])
    return found


def remarks(queues: Queues) -> Iterator[str]:
    """What is worth a word in records in which nothing is stuck."""
    for group in queues.communicators:
        floor = floor_of(queues, group)
        behind = [rank for rank, lane in group.lanes.items() if lane.known and len(lane) and lane.numbers[-1] < floor]
        late = [
            rank
            for rank, lane in group.lanes.items()
            if rank not in behind and (place := lane.first_open()) is not None and lane.numbers[place] <= floor
        ]
        if behind:
            yield f"the dump of {ranks(behind)} is older than others: it ends before number {floor} of {group.title}"
        if late:
            yield (
                f"{say(late, 'has', 'have')} not completed number {floor} of {group.title} in"
                f" {words.verb(len(late), 'its dump', 'their dumps')}, which other ranks have: all had enqueued it,"
                " so it was on its way"
            )
        yield from _unequal(queues, group)


def _unequal(queues: Queues, group: Communicator) -> Iterator[str]:
    """Ranks that have fewer calls than others under their last number, of those that were coalesced."""
    lanes = [lane for lane in group.lanes.values() if len(lane)]
    last = min((lane.numbers[-1] for lane in lanes), default=None)
    if last is None:
        return
    counts = {lane.rank: len(lane.places(last)) for lane in lanes if lane.numbers[0] <= last}  # the others lost it
    most = max(counts.values())
    short = [rank for rank, count in counts.items() if count < most]
    if short:
        lane = next(lane for lane in lanes if counts.get(lane.rank) == most)
        call = queues.call(lane, lane.places(last)[counts[short[0]]])
        has = words.verb(len(short), "has", "have")
        yield f"{ranks(short)} {has} no entry for {named(call, last, group)}, coalesced elsewhere"
