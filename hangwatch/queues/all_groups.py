"""The order of a rank's calls over all of its groups, which tells more than that of one group.

In one group a call that was left out may look like others that were added. Over all groups the calls in between tell.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .model import Call, Communicator, Queues
from .readings import Kind, Reading, habit, read

_WENT_WELL = 2  # times that a step went well, which make it the rank's own
_TRIED = 8  # other ranks to whose order a rank's is compared


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a rank: `token` is what it was and where it came from."""

    order: int
    token: int
    group: Communicator
    number: int
    pair: bool  # a send or receive
    done: bool


@dataclass(frozen=True, slots=True)
class Parting:
    """How `mine` parts from `theirs` at `place`, over all groups of both ranks."""

    reading: Reading
    mine: Sequence[Step]
    theirs: Sequence[Step]
    place: int

    def changed(self) -> Sequence[Step]:
        """The calls that were left out, added or moved; of scattered ones the first."""
        steps = self.theirs if self.reading.kind is Kind.SKIPPED else self.mine
        return steps[self.place : self.place + (1 if self.reading.scattered else self.reading.count)]


class AllGroups:
    """The calls of each rank over all of its groups; `tokens` gives each call of the queues its number."""

    def __init__(self, queues: Queues, tokens: Sequence[int]) -> None:
        self._queues = queues
        self._tokens = tokens
        self._steps: dict[int, list[Step]] = {}

    def steps(self, rank: int) -> list[Step]:
        """All calls of a rank in the order in which it made them."""
        if rank not in self._steps:
            self._steps[rank] = sorted(self._recorded(rank), key=lambda step: step.order)
        return self._steps[rank]

    def _recorded(self, rank: int) -> Iterable[Step]:
        for group in self._queues.communicators:
            for pair, lane in ((False, group.lanes.get(rank)), (True, group.peers.get(rank))):
                if lane is None:
                    continue
                for place in range(len(lane)):
                    token = self._tokens[lane.calls[place]]
                    yield Step(lane.order[place], token, group, lane.numbers[place], pair, lane.done(place))

    def call(self, step: Step, ranks: Iterable[int]) -> Call | None:
        """The call of a step, as one of `ranks` recorded it."""
        for rank in ranks:
            lane = (step.group.peers if step.pair else step.group.lanes).get(rank)
            places = lane.places(step.number) if lane is not None else range(0)
            if lane is not None and places:
                return self._queues.call(lane, places[0])
        return None

    def recorded(self, rank: int, step: Step) -> Call:
        """The call of one of the steps of `rank`."""
        lane = (step.group.peers if step.pair else step.group.lanes)[rank]
        return self._queues.call(lane, bisect_left(lane.order, step.order))

    def parting(self, rank: int, others: Sequence[int]) -> Parting | None:
        """How the order of `rank` parts from that of the rank among `others` that shares most of it.

        Of several that share as much, the one whose record goes on furthest tells most of what was due behind it.
        """
        best: tuple[int, int, list[Step], list[Step]] | None = None
        for other in others[:_TRIED]:
            own, theirs = self._aligned(rank, other)
            pairs = enumerate(zip(own, theirs, strict=False))
            place = next((at for at, (a, b) in pairs if a.token != b.token), None)
            if place and (best is None or (place, len(theirs)) > best[:2]):
                best = (place, len(theirs), own, theirs)
        if best is None:
            return None
        place, _, own, theirs = best
        return Parting(read([step.token for step in own], [step.token for step in theirs], place), own, theirs, place)

    def apart(self, rank: int, other: int) -> int | None:
        """How many calls two ranks made alike before they parted; -1 where they did not, None where none compare."""
        mine, theirs = self._aligned(rank, other)
        pairs = enumerate(zip(mine, theirs, strict=False))
        return next((at for at, (a, b) in pairs if a.token != b.token), -1) if mine else None

    def goes_on(self, other: int, rank: int, place: int, token: int) -> bool:
        """Whether `other` made the calls of `rank` up to that place, and the one of that token there."""
        mine, theirs = self._aligned(rank, other)
        if len(theirs) <= place or theirs[place].token != token:
            return False
        return all(a.token == b.token for a, b in zip(mine[:place], theirs[:place], strict=False))

    def reading(self, rank: int, others: Sequence[int], group: Communicator, number: int) -> Reading | None:
        """How `rank` left the order of the others at that call, its calls in `group` counted; None if it was not there.

        None as well where the calls of all groups are no clear reading.
        """
        found = self.parting(rank, others)
        if found is None or not found.reading.whole or not found.reading.agreeing:
            return None
        changed = found.changed()
        inside = [step for step in changed if step.group.name == group.name and not step.pair]
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
            calls = ((at, step) for at, step in enumerate(own) if not step.pair)
            at = next((at for at, step in calls if step.group is group and step.number == number), None)
            if at is not None and [each.token for each in own[: at + 1]] == [each.token for each in theirs[: at + 1]]:
                found.append(other)
        return tuple(found)

    def agree(self, one: int, other: int) -> bool:
        """Whether two ranks made the same calls in the same order, as far as both of their records go."""
        mine, theirs = self._aligned(one, other)
        pairs = zip(mine, theirs, strict=False)
        return bool(mine) and all(a.token == b.token for a, b in pairs)

    def at_one_place(self, one: int, other: int) -> bool:
        """Whether the hosts of two ranks are known to stand in the same frames."""
        hosts = self._queues.hosts
        return bool(hosts.get(one)) and hosts.get(one) == hosts.get(other)

    def left_rounds(self, rank: int, others: Sequence[int]) -> bool:
        """Whether `rank` left out a round of what it calls in all of its groups, and not only one of one group."""
        if len({step.group.name for step in self.steps(rank)}) == 1:
            return True
        found = self.parting(rank, others)
        if found is None or found.reading.kind is not Kind.SKIPPED:
            return False
        *before, first = [step.token for step in found.theirs[: found.place + 1]]
        return first in before and before[::-1].index(first) < found.reading.count

    def strays(self, ranks: Iterable[int], until: Mapping[int, int]) -> list[int]:
        """Those of `ranks` that made calls in an order of which no other rank made.

        Only calls up to the one that `until` names by its order count, or to the first that is open: what a host
        enqueued behind it holds up nothing.

        A step from one call to another is new to a rank where it knew both before, and never one behind the other.
        Steps that half of the ranks have made are the program's, and those that went well twice are the rank's own:
        the first stage of a pipeline calls in an order that no other stage has.
        """
        new = {rank: _new_steps(self.until(rank, until.get(rank))) for rank in ranks}
        counts = Counter(step for steps in new.values() for step in steps)
        return sorted(rank for rank, steps in new.items() if any(2 * counts[step] <= len(new) for step in steps))

    def habit(self, rank: int, last: int, usual: int) -> int:
        """How often `rank` went on to `usual` from where it now went to the call of that order, which is new there."""
        *before, own = [step.token for step in self.until(rank, last)] or [usual]
        return habit(before, own, usual)

    def as_before(self, rank: int, last: int) -> bool:
        """Whether `rank` had come from the same call to the one of that order in an earlier round too."""
        steps = [(one.token, other.token) for one, other in pairwise(self.until(rank, last))]
        return bool(steps) and steps[-1] in steps[:-1]

    def made_again(self, rank: int, last: int | None) -> bool:
        """Whether the collective in which `rank` stands is the one that it made right before, as never until then."""
        steps = self.until(rank, last)
        again = [two.order for one, two in pairwise(steps) if one.token == two.token and not two.pair]
        return again == [steps[-1].order] if steps else False

    def first(self, rank: int, order: int) -> bool:
        """Whether the call of that order is the only one of its kind that is recorded of `rank`, in any group."""
        steps = self.steps(rank)
        tokens = {step.token for step in steps if step.order == order}
        return sum(step.token in tokens for step in steps) == 1

    def went_on(self, rank: int, order: int) -> bool:
        """Whether a call behind the one of that order is of a kind that `rank` had made before: its rounds go on."""
        steps = self.steps(rank)
        before = {step.token for step in steps if step.order < order}
        return any(step.token in before for step in steps if step.order > order)

    def _aligned(self, rank: int, other: int) -> tuple[list[Step], list[Step]]:
        """Both from the first collective on that both still record: the rings of two ranks end at different calls.

        From the beginning where neither has lost any: ranks of other groups may share none.
        """
        mine, theirs = self._without_gaps(rank), self._without_gaps(other)
        if not (mine and theirs) or (mine[0].token == theirs[0].token and not (self.lost(rank) or self.lost(other))):
            return mine, theirs
        known = {(step.group.name, step.number): at for at, step in reversed(list(enumerate(theirs))) if not step.pair}
        for at, step in enumerate(mine):
            if not step.pair and (step.group.name, step.number) in known:
                return mine[at:], theirs[known[step.group.name, step.number] :]
        return [], []

    def _without_gaps(self, rank: int) -> list[Step]:
        """The calls of a rank since which none of any group is lost, where each group has a ring of its own."""
        steps = self.steps(rank)
        if not self._queues.gaps:
            return steps
        lanes = (lanes.get(rank) for group in self._queues.communicators for lanes in (group.lanes, group.peers))
        since = max((lane.order[0] for lane in lanes if lane is not None and len(lane) and lane.lost), default=0)
        return steps[bisect_left(steps, since, key=lambda step: step.order) :]

    def lost(self, rank: int) -> bool:
        """Whether older calls of a rank are no longer recorded."""
        lanes = (lanes.get(rank) for group in self._queues.communicators for lanes in (group.lanes, group.peers))
        return any(lane.lost for lane in lanes if lane is not None and len(lane))

    def until(self, rank: int, last: int | None) -> Sequence[Step]:
        """The calls of a rank up to the one of that order, or to the first that is open."""
        steps = self.steps(rank)
        if last is None:
            last = next((step.order for step in steps if not step.done), steps[-1].order if steps else 0)
        return steps[: bisect_right(steps, last, key=lambda step: step.order)]


def _new_steps(calls: Sequence[Step]) -> set[tuple[int, int]]:
    """Steps between calls that were known before, without those that went well twice: they are no departure."""
    seen: set[int] = set()
    known: set[tuple[int, int]] = set()
    new: set[tuple[int, int]] = set()
    went_well: Counter[tuple[int, int]] = Counter()
    for before, (one, other) in zip([None, *calls], pairwise(calls), strict=False):
        step = (one.token, other.token)
        if before is not None:
            seen.add(before.token)
        if one.token in seen and other.token in seen and step not in known:
            new.add(step)
        known.add(step)
        went_well[step] += other.done
    return {step for step in new if went_well[step] < _WENT_WELL}
