"""The order of a rank's calls over all of its groups, which tells more than that of one group.

In one group a call that was left out may look like others that were added. Over all groups the calls in between tell.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hangwatch.ranks.sides import apart_at

from .matching import kind_of
from .model import Call, Communicator, Lane, Queues
from .readings import Kind, Reading, due, habit, read

_WENT_WELL = 2  # times that a transition went well, which make it the rank's own
_SAME_ORDER_ASKED = 64  # other ranks whether they keep the same order
_TRIED = 8  # other ranks to whose order a rank's is compared


@dataclass(frozen=True, slots=True)
class IssuedCall:
    """One call of a rank: `token` is what it was and where it came from."""

    order: int
    token: int
    group: Communicator
    number: int
    pair: bool  # a send or receive
    done: bool

    def lane(self, rank: int) -> Lane | None:
        """Where a rank keeps such calls."""
        return (self.group.peers if self.pair else self.group.lanes).get(rank)


@dataclass(frozen=True, slots=True)
class Parting:
    """How `mine` parts from `theirs` at `place`, over all groups of both ranks."""

    reading: Reading
    mine: Sequence[IssuedCall]
    theirs: Sequence[IssuedCall]
    place: int

    def changed(self) -> Sequence[IssuedCall]:
        """The calls that were left out, added or moved; of scattered ones the first."""
        calls = self.theirs if self.reading.kind is Kind.SKIPPED else self.mine
        return calls[self.place : self.place + (1 if self.reading.scattered else self.reading.count)]


class AllGroups:
    """The calls of each rank over all of its groups; `tokens` gives each call of the queues its number."""

    def __init__(self, queues: Queues, tokens: Sequence[int]) -> None:
        self._queues = queues
        self._tokens = tokens
        self._calls: dict[int, list[IssuedCall]] = {}
        self._kinds = {tokens[index]: kind_of(call) for index, call in enumerate(queues.calls)}

    def calls(self, rank: int) -> list[IssuedCall]:
        """All calls of a rank in the order in which it made them."""
        if rank not in self._calls:
            self._calls[rank] = sorted(self._recorded(rank), key=lambda each: each.order)
        return self._calls[rank]

    def _recorded(self, rank: int) -> Iterable[IssuedCall]:
        for group, lane in self._queues.lanes_of(rank):
            pair = lane is group.peers.get(rank)
            for place, call in enumerate(lane.calls):
                order, number, done = lane.order[place], lane.numbers[place], lane.done(place)
                yield IssuedCall(order, self._tokens[call], group, number, pair, done)

    def call(self, issued: IssuedCall, ranks: Iterable[int]) -> Call | None:
        """The call, as one of `ranks` recorded it."""
        for rank in ranks:
            lane = issued.lane(rank)
            places = lane.places(issued.number) if lane is not None else range(0)
            if lane is not None and places:
                return self._queues.call(lane, places[0])
        return None

    def recorded(self, rank: int, issued: IssuedCall) -> Call:
        """One of the calls of `rank`, as it recorded it."""
        lane = (issued.group.peers if issued.pair else issued.group.lanes)[rank]
        return self._queues.call(lane, bisect_left(lane.order, issued.order))

    def parting(self, rank: int, others: Sequence[int]) -> Parting | None:
        """How the order of `rank` parts from that of the rank among `others` that shares most of it.

        Of several that share as much, the one whose record goes on furthest tells most of what was due behind it.
        """
        best: tuple[int, int, list[IssuedCall], list[IssuedCall]] | None = None
        for other in others[:_TRIED]:
            own, theirs = self._aligned(rank, other)
            place = apart_at(_tokens(own), _tokens(theirs))
            if place and (best is None or (place, len(theirs)) > best[:2]):
                best = (place, len(theirs), own, theirs)
        if best is None:
            return None
        place, _, own, theirs = best
        mine, usual = ([each.token for each in calls] for calls in (own, theirs))
        return Parting(read(mine, usual, place, self._kinds.__getitem__), own, theirs, place)

    def apart(self, rank: int, other: int) -> int | None:
        """How many calls two ranks made alike before they parted; -1 where they did not, None where none compare."""
        mine, theirs = self._aligned(rank, other)
        place = apart_at(_tokens(mine), _tokens(theirs))
        return (-1 if place is None else place) if mine else None

    def goes_on(self, other: int, rank: int, place: int, token: int) -> bool:
        """Whether `other` made the calls of `rank` up to that place, and the one of that token there."""
        mine, theirs = self._aligned(rank, other)
        if len(theirs) <= place or theirs[place].token != token:
            return False
        return apart_at(_tokens(mine[:place]), _tokens(theirs[:place])) is None

    def reading(self, rank: int, others: Sequence[int], group: Communicator, number: int) -> Reading | None:
        """How `rank` left the order of the others at that call, its calls in `group` counted; None if it was not there.

        None as well where the calls of all groups are no clear reading.
        """
        found = self.parting(rank, others)
        if found is None or not found.reading.whole or not found.reading.agreeing:
            return None
        changed = found.changed()
        inside = [each for each in changed if each.group.name == group.name and not each.pair]
        if not inside or inside[0].number != number:
            return None
        if len(inside) == len(changed) < found.reading.count:
            return found.reading  # the others stand in the first of them, and have not come to the rest
        return replace(found.reading, count=len(inside))

    def votes(self, rank: int, others: Iterable[int], group: Communicator, number: int) -> tuple[int, ...]:
        """Those of `others` that kept the order of `rank` up to that call of it, and the call as well.

        They may be of other groups: ranks of one program that stand in other rows of a mesh make the same calls there.
        """
        found: list[int] = []
        for other in others:
            own, theirs = self._aligned(rank, other)
            calls = ((at, each) for at, each in enumerate(own) if not each.pair)
            at = next((at for at, each in calls if each.group is group and each.number == number), None)
            if at is not None and [each.token for each in own[: at + 1]] == [each.token for each in theirs[: at + 1]]:
                found.append(other)
        return tuple(found)

    def agree(self, one: int, other: int) -> bool:
        """Whether two ranks made the same calls in the same order, as far as both of their records go."""
        mine, theirs = self._aligned(one, other)
        return bool(mine) and apart_at(_tokens(mine), _tokens(theirs)) is None

    def shared(self, rank: int, issued: IssuedCall, others: Iterable[int]) -> bool:
        """Whether another rank made the same calls in the same order, and that one too under its number."""
        asked = (other for other in sorted(others)[:_SAME_ORDER_ASKED] if other != rank and self.agree(rank, other))
        own = (issued.token, issued.number)
        return any(own == (each.token, each.number) for other in asked for each in self.calls(other))

    def at_one_place(self, one: int, other: int) -> bool:
        """Whether the hosts of two ranks are known to stand in the same frames."""
        hosts = self._queues.hosts
        return bool(hosts.get(one)) and hosts.get(one) == hosts.get(other)

    def due(self, rank: int) -> tuple[Communicator, bool] | None:
        """The group of the call that `rank` made after its last calls in earlier rounds, and whether it is a message.

        None where it went on in several ways, or never came back to them.
        """
        calls = [(each.token, each.group.name, each.pair) for each in self.calls(rank)]
        if (found := due(calls)) is None:
            return None
        (_, name, pair), _ = found
        return next((each.group, pair) for each in reversed(self.calls(rank)) if each.group.name == name)

    def left_rounds(self, rank: int, others: Sequence[int]) -> bool:
        """Whether `rank` left out a round of what it calls in all of its groups, and not only one of one group."""
        if len({each.group.name for each in self.calls(rank)}) == 1:
            return True
        found = self.parting(rank, others)
        if found is None or found.reading.kind is not Kind.SKIPPED:
            return False
        *before, first = [each.token for each in found.theirs[: found.place + 1]]
        return first in before and before[::-1].index(first) < found.reading.count

    def strays(self, ranks: Iterable[int], until: Mapping[int, int]) -> list[int]:
        """Those of `ranks` that made calls in an order of which no other rank made.

        Only calls up to the one that `until` names by its order count, or to the first that is open: what a host
        enqueued behind it holds up nothing.

        A transition from one call to another is new to a rank where it knew both before, never one behind the other.
        Those that half of the ranks have made are the program's, and those that went well twice are the rank's own: the
        first stage of a pipeline calls in an order that no other stage has.
        """
        new = {rank: _new_transitions(self.until(rank, until.get(rank))) for rank in ranks}
        counts = Counter(transition for transitions in new.values() for transition in transitions)
        return sorted(rank for rank, own in new.items() if any(2 * counts[each] <= len(new) for each in own))

    def habit(self, rank: int, last: int, usual: int) -> int:
        """How often `rank` went on to `usual` from where it now went to the call of that order, which is new there."""
        *before, own = [each.token for each in self.until(rank, last)] or [usual]
        return habit(before, own, usual)

    def as_before(self, rank: int, last: int) -> bool:
        """Whether `rank` had come from the same call to the one of that order in an earlier round too."""
        transitions = [(one.token, other.token) for one, other in pairwise(self.until(rank, last))]
        return bool(transitions) and transitions[-1] in transitions[:-1]

    def made_again(self, rank: int, last: int | None) -> bool:
        """Whether the collective in which `rank` stands is the one that it made right before, as never until then."""
        calls = self.until(rank, last)
        again = [two.order for one, two in pairwise(calls) if one.token == two.token and not two.pair]
        return again == [calls[-1].order] if calls else False

    def first(self, rank: int, order: int) -> bool:
        """Whether the call of that order is the only one of its kind that is recorded of `rank`, in any group."""
        calls = self.calls(rank)
        tokens = {each.token for each in calls if each.order == order}
        return sum(each.token in tokens for each in calls) == 1

    def went_on(self, rank: int, order: int) -> bool:
        """Whether a call behind the one of that order is of a kind that `rank` had made before: its rounds go on."""
        calls = self.calls(rank)
        before = {each.token for each in calls if each.order < order}
        return any(each.token in before for each in calls if each.order > order)

    def _aligned(self, rank: int, other: int) -> tuple[list[IssuedCall], list[IssuedCall]]:
        """Both from the first collective on that both still record: the rings of two ranks end at different calls.

        From the beginning where neither has lost any: ranks of other groups may share none.
        """
        mine, theirs = self.without_gaps(rank), self.without_gaps(other)
        if not (mine and theirs) or (mine[0].token == theirs[0].token and not (self.lost(rank) or self.lost(other))):
            return mine, theirs
        known = {(each.group.name, each.number): at for at, each in reversed(list(enumerate(theirs))) if not each.pair}
        for at, each in enumerate(mine):
            if not each.pair and (each.group.name, each.number) in known:
                return mine[at:], theirs[known[each.group.name, each.number] :]
        return [], []

    def without_gaps(self, rank: int) -> list[IssuedCall]:
        """The calls of a rank since which none of any group is lost, where each group has a ring of its own."""
        calls = self.calls(rank)
        if not self._queues.gaps:
            return calls
        lost = (lane.order[0] for _, lane in self._queues.lanes_of(rank) if len(lane) and lane.lost)
        since = max(lost, default=0)
        return calls[bisect_left(calls, since, key=lambda each: each.order) :]

    def lost(self, rank: int) -> bool:
        """Whether older calls of a rank are no longer recorded."""
        return any(lane.lost for _, lane in self._queues.lanes_of(rank) if len(lane))

    def until(self, rank: int, last: int | None) -> Sequence[IssuedCall]:
        """The calls of a rank up to the one of that order, or to the first that is open."""
        calls = self.calls(rank)
        if last is None:
            last = next((each.order for each in calls if not each.done), calls[-1].order if calls else 0)
        return calls[: bisect_right(calls, last, key=lambda each: each.order)]


def _tokens(calls: Iterable[IssuedCall]) -> Iterator[int]:
    return (each.token for each in calls)


def _new_transitions(calls: Sequence[IssuedCall]) -> set[tuple[int, int]]:
    """Transitions between calls that were known before, without those that went well twice: they are no departure."""
    seen: set[int] = set()
    known: set[tuple[int, int]] = set()
    new: set[tuple[int, int]] = set()
    went_well: Counter[tuple[int, int]] = Counter()
    for before, (one, other) in zip([None, *calls], pairwise(calls), strict=False):
        transition = (one.token, other.token)
        if before is not None:
            seen.add(before.token)
        if one.token in seen and other.token in seen and transition not in known:
            new.add(transition)
        known.add(transition)
        went_well[transition] += other.done
    return {transition for transition in new if went_well[transition] < _WENT_WELL}
