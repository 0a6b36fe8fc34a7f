"""Whether the records of a rank would show a call that another rank waits in."""

from __future__ import annotations

from hangwatch.facts.call_site import by_the_engine
from hangwatch.facts.case import Case
from hangwatch.stacks.activity import UNRECORDED, Within


def would_list(case: Case, rank: int, other: int) -> bool:
    """The records of `other` would show a call such as that in which `rank` waits, with its place.

    What DDP issues by itself, in forward and backward, is on no board: a flight recorder alone lists it, and those of
    the engine's own threads have no place. Of a framework's meetings, and of RPC, there is no record.
    """
    now = case.ranks[rank].now
    if now.doing in UNRECORDED:
        return False
    if now.within.isdisjoint((Within.BACKWARD, Within.BUFFERS)):
        return True
    calls = case.ledger.calls(other).values()
    placed = Within.BACKWARD not in now.within or not any(by_the_engine(call) for call in calls)
    return placed and other in case.ranks and case.ranks[other].evidence.collectives.complete
