"""Calls that were coalesced: torch records each of them, and one entry for the launch of all."""

from __future__ import annotations

from hangwatch.queues.model import Call, Lane


def bundle(calls: list[Call], lane: Lane) -> None:
    """Calls that were coalesced are one launch under one number, and only its last entry, "coalesced", has events."""
    for place in range(1, len(lane)):
        if calls[lane.calls[place]].op.endswith("coalesced") and lane.numbers[place - 1] == lane.numbers[place]:
            first = place
            while first and lane.numbers[first - 1] == lane.numbers[place]:
                first -= 1
                lane.states[first] = lane.states[place]


def without_half_a_bundle(calls: list[Call], lane: Lane) -> None:
    """Of coalesced calls the first ones may have left the ring: the rest does not compare with all of them.

    An open bundle stays, since its number is what the rank waits in.
    """
    if not lane.lost:
        return
    oldest = lane.places(lane.numbers[0])
    ends = calls[lane.calls[oldest[-1]]].op.endswith("coalesced")
    if ends and lane.done(oldest[-1]) and len(oldest) < len(lane):
        lane.forget(len(oldest))
