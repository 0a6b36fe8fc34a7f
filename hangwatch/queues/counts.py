"""How many calls ranks had made in their groups when they came to one collective: that tells who made one fewer.

torch numbers the calls of a group from its first one, so that counts reach further back than what is recorded, and need
no call sites. Ranks of one program that stand in other rows of a mesh have made equally many calls in groups of the
same size, wherever all of them call the same thing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace

from hangwatch import words

from .matching import shape
from .model import Call, Communicator, Lane, Queues
from .names import named, ranks

_WITNESSES = 2  # other ranks at least, who have made equally many calls

Counts = Counter[tuple[int, int]]  # how many groups of a size there are, in which so many calls were made


@dataclass(frozen=True, slots=True)
class Odd:
    """A rank of a group that has made another number of calls there than `witnesses` in their groups of that size."""

    rank: int
    made: int
    usual: int
    witnesses: tuple[int, ...]
    at: str  # the collective at which they were counted
    early: bool = False  # their numbers differed already at the first collective that all of them record

    def __str__(self) -> str:
        return (
            f"when they came to {self.at}, {ranks(self.witnesses)} had made {words.plural(self.usual, 'call')} in their"
            f" groups of that size, and {ranks([self.rank])} {self.made}"
        )


class Counted:
    """Counts of the ranks of a job."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._lanes: dict[int, list[tuple[Communicator, Lane]]] = {}
        self._known: dict[tuple[int, int], dict[int, Counts] | None] = {}
        for group in queues.communicators:
            for rank, lane in group.lanes.items():
                if lane.known and not group.guessed:
                    self._lanes.setdefault(rank, []).append((group, lane))

    def odd(self, group: Communicator, *, settled: bool = False) -> Odd | None:
        """The one member that made another number of calls; None where that is none or several of them.

        `settled`: when they came to a call that is complete. A rank that makes a call later than the others has not
        made it yet at the last one.
        """
        found = [odd for rank in group.lanes if (odd := self._odd(group, rank, settled)) is not None]
        return found[0] if len(found) == 1 else None

    def made(self, rank: int, call: Call, number: int, size: int, before: int) -> bool:
        """Whether `rank` made that call, of that number in a group of that size, before its call of order `before`.

        It may be another group than the one in question: ranks of one program number their calls alike.
        """
        for group, lane in self._lanes.get(rank, ()):
            places = lane.places(number) if len(group.members) == size else ()
            if any(lane.order[place] < before and self._queues.call(lane, place) == call for place in places):
                return True
        return False

    def is_like(self, rank: int, group: Communicator) -> bool:
        """Whether `rank` has a group of that size and description, as ranks in other rows of a mesh have."""
        known = (other for other, _ in self._lanes.get(rank, ()))
        return any((len(each.members), each.description) == (len(group.members), group.description) for each in known)

    def _odd(self, group: Communicator, rank: int, settled: bool) -> Odd | None:
        """What other groups of `rank` tell of it, each at its last call: one may lie before the call in question."""
        for other, lane in sorted(self._lanes.get(rank, ()), key=lambda each: -len(each[0].members)):
            if other is group or not len(lane):
                continue
            number = _last_complete(other) if settled else lane.numbers[-1]
            if (found := self._unlike(group, rank, other, number)) is not None:
                first = self._unlike(group, rank, other, _first_recorded(other))
                return replace(first, early=True) if first is not None else found
        return None

    def _at(self, other: Communicator, number: int) -> dict[int, Counts] | None:
        """The counts of each rank when it came to that call of a group; None where not all of these made it alike."""
        key = id(other), number  # ranks may have groups of one name
        if key not in self._known:
            self._known[key] = self._counted(other, number)
        return self._known[key]

    def _counted(self, other: Communicator, number: int) -> dict[int, Counts] | None:
        lanes = [lane for lane in other.lanes.values() if lane.places(number)]
        places = {lane.rank: lane.places(number).start for lane in lanes}
        if len({shape(self._queues.call(lane, places[lane.rank])) for lane in lanes}) > 1:
            return None
        counts = {lane.rank: self._counts(lane.rank, lane.order[places[lane.rank]], other) for lane in lanes}
        return {rank: found for rank, found in counts.items() if found is not None}

    def _counts(self, rank: int, order: int, but: Communicator) -> Counts | None:
        """The calls that a rank had made in each of its groups before the call of that order; None if unknown."""
        found: Counts = Counter()
        for group, lane in self._lanes.get(rank, ()):
            made = self._made(lane, order) if group is not but else 0
            if made is None:
                return None
            found[len(group.members), made] += made > 0
        return +found

    def _made(self, lane: Lane, order: int) -> int | None:
        """The number of the last call of a lane before the one of that order, 0 if there is none; None if unknown."""
        if not len(lane):
            return lane.enqueued if lane.enqueued > 0 else None if lane.lost else 0
        place = bisect_left(lane.order, order)
        if not place and lane.lost and self._queues.gaps:
            return None
        return lane.numbers[place - 1] if place else lane.numbers[0] - 1

    def _unlike(self, group: Communicator, rank: int, other: Communicator, number: int) -> Odd | None:
        counts = self._at(other, number) or {}
        size, own = len(group.members), counts.get(rank)
        asked = {each: found for each, found in counts.items() if each not in group.members}
        if own is None or len(asked) < _WITNESSES:
            return None
        usual = _most(asked)
        more, fewer = (dict((a - b).elements()) for a, b in ((own, usual), (usual, own)))
        if size not in more or more.keys() != fewer.keys() or len(more) < (own - usual).total():
            return None  # the same, or ranks of another part of the program
        if any((more[each] < fewer[each]) != (more[size] < fewer[size]) for each in more):
            return None
        alike = tuple(sorted(each for each, found in asked.items() if found == usual))
        lane = other.lanes[rank]
        place = lane.places(number).start
        if 2 * len(alike) <= len(asked) or more[size] != self._made(group.lanes[rank], lane.order[place]):
            return None
        call = self._queues.call(lane, place)
        return Odd(rank, more[size], fewer[size], alike, named(call, number, other))


def _first_recorded(group: Communicator) -> int:
    """The first call of a group that none of its ranks has lost."""
    return max((lane.numbers[0] for lane in group.lanes.values() if len(lane)), default=0)


def _last_complete(group: Communicator) -> int:
    """The last call of a group that is complete on all of its ranks."""
    return min((lane.completed for lane in group.lanes.values() if len(lane)), default=0)


def _most(counts: dict[int, Counts]) -> Counts:
    (usual, _), *_ = Counter(tuple(sorted(each.items())) for each in counts.values()).most_common(1)
    return Counter(dict(usual))
