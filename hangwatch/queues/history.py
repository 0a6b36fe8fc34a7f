"""Which rank left the order of calls that the others kept: histories of one communicator, compared.

The number under which calls are paired says little: a rank that skipped a call issues the right numbers with
the wrong calls from then on. So each rank's calls, with the whole path of the user's code as token, are compared with
those of the majority; the first place where they differ is tried as a call that was left out, one that was added, and
another call.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from hangwatch.stacks.frames import origin

from .matching import shape
from .model import COMPLETED, STATE, Call, Communicator, Lane, Queues

FARTHEST = 32  # calls that a rank may have left out or added at one place
LOOKED_AT = 64  # calls behind it that are compared
ENOUGH = 8  # calls in a row that agree again are no chance
_WENT_WELL = 2  # times that a step went well, which make it the rank's own


class Kind(StrEnum):
    SKIPPED = "skipped"
    EXTRA = "extra"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Departure:
    """Where ranks left the order of the others.

    `usual` is what the others called as `number`, `own` what these ranks did. `count` calls were left out or added.
    `agreeing` calls behind it agree again. `majority` and `habit` are the witnesses: more than half of the ranks did
    otherwise; these ranks themselves did otherwise before.
    """

    kind: Kind
    group: Communicator
    ranks: tuple[int, ...]
    number: int
    usual: Call
    own: Call
    count: int = 1
    agreeing: int = 0
    majority: bool = False
    habit: bool = False
    against: tuple[int, ...] = ()  # ranks that kept to `usual`


class Histories:
    """The histories of all communicators; calls get small numbers for what they are and where they come from."""

    def __init__(self, queues: Queues) -> None:
        self.queues = queues
        tokens: dict[object, int] = {}
        self._token = array("l", (tokens.setdefault(_identity(call), len(tokens)) for call in queues.calls))
        self._shapes = {self._token[index]: shape(call) for index, call in enumerate(queues.calls)}

    def tokens(self, lane: Lane, first: int = 0) -> array[int]:
        """The calls of a lane as numbers, from the place `first` on."""
        return array("l", map(self._token.__getitem__, lane.calls[first:]))

    def departure(self, group: Communicator, until: int | None = None) -> Departure | None:
        """The earliest departure in a communicator, up to the number `until`; None where all histories agree."""
        lanes = [lane for lane in group.lanes.values() if len(lane)]
        if len(lanes) < 2:
            return None
        start = max(lane.numbers[0] for lane in lanes)
        rows = {lane.rank: self._row(lane, start) for lane in lanes}
        rows = {rank: row for rank, row in rows.items() if row}
        if len(rows) < 2:
            return None
        usual, alike = _majority(rows)
        found = [
            departure
            for rank, row in rows.items()
            if (departure := self._compared(group, rank, row, rows[usual], usual)) is not None
        ]
        found = [each for each in found if until is None or each.number <= until]
        if not found:
            return None
        return self._settled(min(found, key=lambda each: each.number), found, 2 * alike > len(rows), rows, usual)

    def _row(self, lane: Lane, start: int) -> array[int]:
        return self.tokens(lane, lane.places(start).start)

    def _settled(
        self, first: Departure, found: list[Departure], majority: bool, rows: dict[int, array[int]], usual: int
    ) -> Departure:
        """The first departure with all ranks that share it, seen from the side that kept its habit."""
        ranks = tuple(sorted(each.ranks[0] for each in found if _alike(each, first)))
        if not majority and not first.own.frames:
            first = replace(first, habit=False)  # calls of several lines look alike: their order tells little
        elif not majority and len(rows) == 2 and not first.habit:
            (rank,) = first.ranks
            other = self._compared(first.group, usual, rows[usual], rows[rank], rank)
            if other is not None and other.habit:
                return other
        kept = tuple(sorted(rows.keys() - {each.ranks[0] for each in found}))
        return replace(first, ranks=ranks, majority=majority, against=kept)

    def _compared(
        self, group: Communicator, rank: int, row: array[int], usual: array[int], other: int
    ) -> Departure | None:
        if rank == other:
            return None
        row, place = self._first_difference(row, usual)
        if place is None:
            return None
        kind, count, agreeing = _edit(row[place:], usual[place:])
        if _swapped(row, usual, place, agreeing):
            kind, count, agreeing = Kind.OTHER, 1, 0
        elif not agreeing and (skipped := _left_out(usual[:place], usual[place], row[place])):
            kind, count = Kind.SKIPPED, skipped
        lane, theirs = group.lanes[rank], group.lanes[other]
        at = len(lane) - len(row) + place
        return Departure(
            kind,
            group,
            (rank,),
            lane.numbers[at],
            self.queues.call(theirs, len(theirs) - len(usual) + place),
            self.queues.call(lane, at),
            count,
            agreeing,
            habit=_strays(row, usual, place),
        )

    def _first_difference(self, row: array[int], usual: array[int]) -> tuple[array[int], int | None]:
        """The first place where histories differ in more than names of this rank's own for the same calls."""
        length = min(len(row), len(usual))
        if row[:length] == usual[:length]:
            return row, None
        mine, theirs = set(row), set(usual)
        aliases: dict[int, int] = {}
        for place in range(length):
            own, other = aliases.get(row[place], row[place]), usual[place]
            if own == other:
                continue
            if own in theirs or other in mine or self._shapes[own] != self._shapes[other]:
                return array("l", (aliases.get(token, token) for token in row)), place
            aliases[own] = other
        return row, None

    def strays(self, ranks: Iterable[int]) -> list[int]:
        """Those of `ranks` that, over all their groups, made calls in an order of which no other rank made.

        A step from one call to another is new to a rank where it knew both before, and never one behind the other.
        Steps that half of the ranks have made are the program's, and those that went well twice are the rank's own:
        the first stage of a pipeline calls in an order that no other stage has.
        """
        new = {rank: _new_steps(*self._merged(rank)) for rank in ranks}
        counts = Counter(step for steps in new.values() for step in steps)
        return sorted(rank for rank, steps in new.items() if any(2 * counts[step] <= len(new) for step in steps))

    def _merged(self, rank: int) -> tuple[list[int], list[bool]]:
        """All calls of a rank in the order in which it made them, and which of them are complete."""
        calls = sorted(
            (order, self._token[call], state & STATE == COMPLETED)
            for group in self.queues.communicators
            for lane in (group.lanes.get(rank), group.peers.get(rank))
            if lane is not None
            for order, call, state in zip(lane.order, lane.calls, lane.states, strict=True)
        )
        return [token for _, token, _ in calls], [done for _, _, done in calls]

    def used(self, group: Communicator, rank: int, call: Call) -> bool:
        """Whether `rank` has ever made that call in this communicator, as far as its record goes back."""
        lane = group.lanes.get(rank)
        token = _identity(call)
        return lane is not None and any(_identity(self.queues.calls[index]) == token for index in set(lane.calls))

    def shares_sites(self, group: Communicator, rank: int, others: Sequence[int]) -> bool:
        """Whether `rank` has calls in its history that others have too: only then a new one means something."""
        lane = group.lanes.get(rank)
        if lane is None or not len(lane):
            return False
        mine = {self._token[index] for index in set(lane.calls)}
        return any(
            mine & {self._token[index] for index in set(group.lanes[other].calls)}
            for other in others
            if other in group.lanes
        )


def _identity(call: Call) -> object:
    path = tuple(frame for frame in call.frames if origin(frame.file) in ("user", "package"))
    return shape(call), path or call.frames


def _majority(rows: dict[int, array[int]]) -> tuple[int, int]:
    """A rank whose history most others share as far as all go, the one that goes furthest, and how many share it."""
    length = min(map(len, rows.values()))
    prefixes = {rank: row[:length].tobytes() for rank, row in rows.items()}
    (common, count), *_ = Counter(prefixes.values()).most_common(1)
    return max((rank for rank, prefix in prefixes.items() if prefix == common), key=lambda rank: len(rows[rank])), count


def _edit(row: array[int], usual: array[int]) -> tuple[Kind, int, int]:
    """How `row` comes to differ at its start: calls left out, added, or another one; and how many agree behind it."""
    best = (Kind.OTHER, 1, _agreeing(row[1:], usual[1:]))
    for count in range(1, FARTHEST + 1):
        for kind, mine, theirs in (
            (Kind.SKIPPED, row, usual[count:]),
            (Kind.EXTRA, row[count:], usual),
        ):
            agreeing = _agreeing(mine, theirs)
            if agreeing > best[2]:
                best = (kind, count, agreeing)
    return best


def _swapped(row: array[int], usual: array[int], place: int, agreeing: int) -> bool:
    """Two calls in the other order, which a shift explains no better, and which no earlier round had in that order."""
    one, two = row[place : place + 2], usual[place : place + 2]
    return agreeing < 2 and len(one) == 2 and one == two[::-1] and tuple(one) not in set(pairwise(usual))


def _left_out(history: array[int], wanted: int, own: int) -> int:
    """How many calls a rank left out that made `own` where `wanted` was due, as the order so far tells; 0 for none."""
    for place in reversed(range(len(history))):
        if history[place] == wanted:
            behind = history[place + 1 : place + 1 + FARTHEST]
            return next((count for count, token in enumerate(behind, 1) if token == own), 0)
    return 0


def _agreeing(row: array[int], usual: array[int]) -> int:
    length = min(len(row), len(usual), LOOKED_AT)
    same = 0
    while same < length and row[same] == usual[same]:
        same += 1
    return same if same == length or same >= ENOUGH else 0


def _strays(row: array[int], usual: array[int], place: int) -> bool:
    """Whether the step to this call is new to the rank, and the one that the others made is not."""
    if place == 0:
        return False
    before = set(pairwise(row[:place]))
    return (row[place - 1], usual[place]) in before and (row[place - 1], row[place]) not in before


def _new_steps(calls: Sequence[int], done: Sequence[bool]) -> set[tuple[int, int]]:
    """Steps between calls that were known before, without those that went well twice: they are no departure."""
    seen: set[int] = set()
    steps: set[tuple[int, int]] = set()
    new: set[tuple[int, int]] = set()
    went_well: Counter[tuple[int, int]] = Counter()
    for before, (one, other), well in zip([None, *calls], pairwise(calls), done[1:], strict=False):
        if before is not None:
            seen.add(before)
        if one in seen and other in seen and (one, other) not in steps:
            new.add((one, other))
        steps.add((one, other))
        went_well[one, other] += well
    return {step for step in new if went_well[step] < _WENT_WELL}


def _alike(one: Departure, other: Departure) -> bool:
    return (one.number, one.kind, one.own) == (other.number, other.kind, other.own)
