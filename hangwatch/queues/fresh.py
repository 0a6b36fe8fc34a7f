"""Calls that are new to a rank: it never made such a one before, and so it may have left its order of calls."""

from __future__ import annotations

from .history import Histories
from .model import Call
from .stuck import Stuck
from .turns import OFTEN


def all_recorded(root: Stuck) -> bool:
    return set(root.group.members) <= root.group.lanes.keys()


def unlike_before(root: Stuck, histories: Histories) -> list[int]:
    """The ranks that never made such a call before in this group, where the others have made theirs.

    None where they are the many: those may have ended their loop as they should, and the few be a round behind.
    """
    first = {rank: _is_new(root, rank, histories) for rank in root.calls}
    new = sorted(rank for rank, fresh in first.items() if fresh)
    return new if 2 * len(new) <= len(first) else []


def rounds_more(root: Stuck, histories: Histories) -> list[int]:
    """The few ranks that make a call of their rounds where all of the many have come to one that is new to them."""
    if root.peers or not all_recorded(root):
        return []
    new = {rank: _is_new(root, rank, histories) for rank in root.calls}
    few = sorted(rank for rank, fresh in new.items() if not fresh)
    regular = all(histories.times(root.group, rank, root.calls[rank]) > 1 for rank in few)
    return few if 2 * len(few) < len(new) and regular else []


def _is_new(root: Stuck, rank: int, histories: Histories) -> bool:
    """Whether a rank's earlier calls were none like this one, of a message those to its peer and in its direction.

    Where ranks differ in what all must share, only that counts: each may bring another number of elements.
    """
    lane = root.lane(rank)
    if lane is None:
        return False
    call = root.calls[rank]
    before = [histories.queues.call(lane, at) for at in range(lane.places(root.batch.get(rank, root.number)).start)]
    if root.peers:
        way = (call.op, call.source, call.target)
        before = [each for each in before if (each.op, each.source, each.target) == way]
        retyped = bool(before) and _types(call) not in set(map(_types, before))  # no batch is of another type
        return (len(before) >= OFTEN or retyped) and call not in before
    if not root.sides:
        return bool(before) and call not in before
    return bool(before) and histories.token_of(call) not in set(map(histories.token_of, set(before)))


def _types(call: Call) -> tuple[str, ...]:
    return call.input_dtypes or call.output_dtypes
