"""The last calls that are recorded of ranks, in any of their groups."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch.model import Frame

from .model import COMPLETED, STATE, Communicator, Lane, Queues
from .names import at, named, ranks
from .stuck import Stuck


def _last_call(queues: Queues, rank: int) -> tuple[Communicator, Lane] | None:
    """The group of the last call that is recorded of a rank, in any of its groups."""
    lanes = ((group, lane) for group, lane in queues.lanes_of(rank) if len(lane))
    return max(lanes, key=lambda pair: pair[1].order[-1], default=None)


def last_line(queues: Queues, rank: int) -> Frame | None:
    """The line of the last call that is recorded of a rank."""
    found = _last_call(queues, rank)
    return queues.call(found[1], len(found[1]) - 1).where if found is not None else None


def last_calls(queues: Queues, absent: Iterable[int], root: Stuck) -> tuple[str, ...]:
    """What the awaited ranks did last, in any group."""
    said: dict[str, list[int]] = {}
    for rank in absent:
        found = _last_call(queues, rank)
        if found is not None:
            group, lane = found
            call = queues.call(lane, len(lane) - 1)
            state = "completed" if lane.states[-1] & STATE == COMPLETED else "not completed"
            text = f"{named(call, lane.numbers[-1], group)}{at(call)}, {state}"
        else:
            known = root.group.lanes.get(rank)
            far = known.enqueued if known is not None else -1
            text = f"number {far} of {root.group.title}" if far > 0 else "none"
        said.setdefault(text, []).append(rank)
    return tuple(f"the last call of {ranks(who)}: {text}" for text, who in list(said.items())[:3])
