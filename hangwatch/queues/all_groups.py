"""The order of a rank's calls over all of its groups, which tells more than that of one group.

In one group a call that was left out may look like others that were added. Over all groups the calls in between tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .model import Communicator, Queues
from .readings import Kind, Reading, read

if TYPE_CHECKING:
    from .history import Departure, Histories

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
        """The calls that were left out, added or moved."""
        steps = self.theirs if self.reading.kind is Kind.SKIPPED else self.mine
        return steps[self.place : self.place + self.reading.count]


def steps(queues: Queues, tokens: Sequence[int], rank: int) -> list[Step]:
    """All calls of a rank in the order in which it made them."""
    found = [
        Step(lane.order[place], tokens[lane.calls[place]], group, lane.numbers[place], pair, lane.done(place))
        for group in queues.communicators
        for pair, lane in ((False, group.lanes.get(rank)), (True, group.peers.get(rank)))
        if lane is not None
        for place in range(len(lane))
    ]
    return sorted(found, key=lambda step: step.order)


def parting(histories: Histories, rank: int, others: Sequence[int]) -> Parting | None:
    """How the order of `rank` parts from that of the rank among `others` that shares most of it."""
    mine = histories.steps(rank)
    best: Parting | None = None
    for other in others[:_TRIED]:
        own, theirs = _aligned(mine, histories.steps(other))
        one, two = [step.token for step in own], [step.token for step in theirs]
        place = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), None)
        if place and (best is None or place > best.place):
            best = Parting(read(one, two, place), own, theirs, place)
    return best


def _aligned(mine: list[Step], theirs: list[Step]) -> tuple[list[Step], list[Step]]:
    """Both from the first collective on that both still record, since the rings of two ranks end at different calls."""
    if not (mine and theirs) or ((mine[0].order, theirs[0].order) == (0, 0) and mine[0].token == theirs[0].token):
        return mine, theirs
    known = {(step.group.name, step.number): at for at, step in reversed(list(enumerate(theirs))) if not step.pair}
    for at, step in enumerate(mine):
        if not step.pair and (step.group.name, step.number) in known:
            return mine[at:], theirs[known[step.group.name, step.number] :]
    return [], []


def over_groups(histories: Histories, departure: Departure) -> Reading | None:
    """The reading of a departure as all groups tell it, with the calls of its group counted; None where they do not."""
    found = parting(histories, departure.ranks[0], departure.against)
    if found is None or not found.reading.whole or not found.reading.agreeing:
        return None
    inside = [step for step in found.changed() if step.group.name == departure.group.name and not step.pair]
    if not inside or inside[0].number != departure.number:
        return None
    return replace(found.reading, count=len(inside))


def left_rounds(histories: Histories, departure: Departure) -> bool:
    """Whether the rank left out a round of what it calls in all of its groups, and not only one of this group."""
    (rank, *_) = departure.ranks
    if len({step.group.name for step in histories.steps(rank)}) == 1:
        return True
    found = parting(histories, rank, departure.against)
    if found is None or found.reading.kind is not Kind.SKIPPED:
        return False
    tokens = [step.token for step in found.theirs[: found.place + 1]]
    *before, first = tokens
    return first in before and before[::-1].index(first) < found.reading.count
