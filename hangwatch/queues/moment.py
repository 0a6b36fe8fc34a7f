"""The moment at which the records were written: what had stood for long then, and what was only on its way."""

from __future__ import annotations

from hangwatch import words

from .dates import by_records, copied_s
from .finding import collective
from .model import Queues
from .names import at, ranks
from .stuck import Kind, Stuck

ON_ITS_WAY_S = 5.0  # a call that was incomplete for less when the record was written shows nothing
YOUNG_S = 120.0  # a rank that others await may be at work for so long: hangwatch's own patience with a live job


def stood_s(queues: Queues, one: Stuck) -> float | None:
    """For how long the call had kept a rank waiting when that rank's record was written; None where not known.

    The wait began when the rank enqueued the call, or when the call before it in the same communicator completed; where
    a record no longer holds either, the last call that its host enqueued bounds it from below. A copied file has a
    later time of its own, so the true time may be shorter, and never longer.
    """
    found = _stood_s(queues, one)
    return max(found.values()) if found and min(found.values()) > -1.0 else None


def _stood_s(queues: Queues, one: Stuck) -> dict[int, float]:
    """By each rank that waits and whose record has a time: for how long it had waited then."""
    found = {}
    for rank in one.waiting:
        began = max(one.created.get(rank, 0), _completed_at(one, rank)) or _enqueued_at(one, rank)
        if began and (written := queues.written.get(rank)) is not None:
            found[rank] = (written - began) / 1e9
    return found


def unmoved_s(queues: Queues) -> float | None:
    """How long nothing had completed in any queue when the last record was written; None where that is not known."""
    if not queues.written or not queues.last_completion:
        return None
    last = max(queues.written, key=queues.written.__getitem__)
    stood = (queues.written[last] - queues.last_completion) / 1e9
    return stood if 0.0 < stood < copied_s(queues, (last,)) else None


def _completed_at(one: Stuck, rank: int) -> int:
    lane = one.lane(rank)
    return lane.completed_at if lane is not None else 0


def _enqueued_at(one: Stuck, rank: int) -> int:
    lane = one.lane(rank)
    return lane.created[-1] if lane is not None and len(lane) else 0


def on_its_way(queues: Queues, one: Stuck) -> bool:
    """A healthy job shows the same: the record was written a moment after the call was enqueued.

    A send that was paired with its receive counts as on its way where that time is not known.
    """
    if one.expired:
        return False
    stood = open_s(queues, one)
    return one.kind in (Kind.WIRE, Kind.QUEUED) and bool(one.peers) if stood is None else stood < ON_ITS_WAY_S


def open_s(queues: Queues, one: Stuck) -> float | None:
    """For how long the call had been open when the records were written; None where their dates do not tell."""
    stood = stood_s(queues, one)
    return stood if stood is not None and stood < copied_s(queues, _stood_s(queues, one)) else None


def by_what(queues: Queues, one: Stuck) -> str:
    """What tells for how long the call had been open, in words."""
    own = by_records(queues, _stood_s(queues, one))
    return "by the times in the dumps" if own else "by the time of the files"


def is_undated(queues: Queues, one: Stuck) -> bool:
    """Nothing tells for how long the call had been open: neither the date of a file, nor that torch gave it up.

    Of live ranks other facts tell it, and so may what others have recorded long behind that call.
    """
    if queues.live or one.expired or open_s(queues, one) is not None:
        return False
    return since_s(queues, one) < YOUNG_S


def since_s(queues: Queues, one: Stuck) -> float:
    """For how long the call had been open at the last event of any record; 0 where that is not known."""
    made = [created for rank, created in one.created.items() if rank in one.waiting and created]
    return (queues.last_event - min(made)) / 1e9 if made else 0.0


def is_young(queues: Queues, one: Stuck) -> bool:
    """The records were written before patience or torch's timeout ran out: the ranks that are awaited may be at work.

    Where no timeout is recorded, torch may have written them because of it.
    """
    stood = stood_s(queues, one)
    limit_s = min(YOUNG_S, 0.9 * queues.timeout_ns / 1e9)
    return not one.expired and stood is not None and stood < limit_s


def said(queues: Queues, one: Stuck) -> str:
    """What was on its way, in words."""
    stood = open_s(queues, one)
    when = f" {words.duration(max(stood, 0.0))} before" if stood is not None else " when"
    late = f"; {ranks(one.awaited)} had not come to it yet" if one.kind is Kind.ABSENT else ""
    return f"{collective(one)}{at(one.call)} was enqueued{when} the dumps were written, and was on its way{late}"
