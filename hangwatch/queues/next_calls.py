"""A call of another size from the same line: the wrong size, or the others' next call, behind one that was left out.

Batches of one size with a last one that is shorter look alike either way: in a round that all make, the size is new.
What the other ranks called behind the place tells, where their hosts ran ahead; and steps, where they are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangwatch.model import Alternative, Certainty

from .history import Histories
from .matching import Shape, shape
from .model import Call, Lane
from .names import ranks
from .stuck import Stuck


def may_be_next(root: Stuck, who: Sequence[int], histories: Histories) -> bool:
    """Whether the calls of `who` may be those that the other ranks make next from that line."""
    if root.peers or not who or not root.sides:
        return False
    own = root.calls[who[0]]
    others = [rank for rank in root.calls if rank not in who and rank in root.group.lanes]
    if _in_one_step(root, own, [*who, *others], histories):
        return False
    later = [each for rank in others for each in _later(root, root.group.lanes[rank], own, histories)]
    return not later or shape(own) in later


def changes(root: Stuck, who: Sequence[int], histories: Histories) -> bool:
    """Whether the sizes from that line changed on `who` from call to call, as they did on all ranks alike."""
    lane, own = root.group.lanes[who[0]], root.calls[who[0]]
    until = lane.places(root.number).start
    calls = [histories.queues.call(lane, place) for place in range(until)]
    return len({shape(call) for call in calls if call.where == own.where}) > 1


def alternatives(who: Sequence[int]) -> tuple[Alternative, ...]:
    if not who:
        return ()
    said = (
        f"{ranks(who)} may have left out an earlier call from that line: this may be the call that the other ranks make"
        " next, such as one on the last batch"
    )
    return (Alternative("skipped-collective", Certainty.UNDETERMINED, said),)


def _later(root: Stuck, lane: Lane, own: Call, histories: Histories) -> Iterator[Shape]:
    """What a rank called from that line behind the place."""
    for place in range(lane.places(root.number).stop, len(lane)):
        call = histories.queues.call(lane, place)
        if call.where == own.where:
            yield shape(call)


def _in_one_step(root: Stuck, own: Call, members: Sequence[int], histories: Histories) -> bool:
    """Whether all came to it in one step, in each of which that line makes one call; of dumps no step is known."""
    now = set()
    for rank in members:
        lane = root.group.lanes[rank]
        if len(lane.steps) != len(lane) or not lane.places(root.number):
            return False
        place = lane.places(root.number).start
        now.add(lane.steps[place])
        before = [
            lane.steps[at]
            for at in range(place + 1)
            if histories.queues.call(lane, at).where == own.where and lane.steps[at] >= 0
        ]
        if len(set(before)) < len(before):
            return False
    return len(now) == 1 and min(now) >= 0
