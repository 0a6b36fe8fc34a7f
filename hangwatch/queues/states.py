"""What a communicator's own trace in a dump (`nccl_comm_state`) says of the device: whether it runs a collective there.

Only some builds of NCCL have such a trace (`ncclCommDump`: NCCLX, RCCL); with NVIDIA's the key is absent. By its keys a
state has the communicator's size and the rank in it, and lists of collectives: past, pending, and the one or those that
the device runs (`CT_currentColl`, or `CT_currentColls` in later versions), as JSON in text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from .model import Communicator, Queues

CURRENT = ("CT_currentColls", "CT_currentColl")
PENDING = "CT_pendingColls"


def running(queues: Queues, group: Communicator) -> dict[int, bool]:
    """For each rank whose trace tells of this communicator, and of work there: whether its device runs any of it."""
    found = {}
    for rank in group.lanes:
        told = [state for state in queues.states.get(rank, {}).values() if _is_of(state, group, rank)]
        if len(told) == 1 and not _ambiguous(queues, group, rank):
            says = _runs(told[0])
            if says is not None:
                found[rank] = says
    return found


def _is_of(state: Mapping[str, str], group: Communicator, rank: int) -> bool:
    try:
        size, place = int(state["nRanks"]), int(state["rank"])
    except (KeyError, TypeError, ValueError):
        return False
    return size == len(group.members) and group.members[place : place + 1] == (rank,)


def _ambiguous(queues: Queues, group: Communicator, rank: int) -> bool:
    """Another group of the rank looks the same by size and place: the states do not say which is which."""
    place = group.members.index(rank)
    return any(
        other is not group and len(other.members) == len(group.members) and other.members[place] == rank
        for other in queues.communicators
        if rank in other.lanes
    )


def _runs(state: Mapping[str, str]) -> bool | None:
    """Whether the device runs a collective; None where nothing is pending either, or the trace cannot be read."""
    try:
        current = [json.loads(state[key]) for key in CURRENT if key in state]
        pending = json.loads(state.get(PENDING) or "[]")
    except (TypeError, ValueError, RecursionError):
        return None
    if not current:
        return None
    return True if any(current) else False if pending else None
