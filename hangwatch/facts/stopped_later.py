"""Ranks that were stopped after the job had come to a standstill: that is no reason why it stands.

Whoever finds a job that hangs looks at its ranks with a debugger, and schedulers stop jobs that do nothing. A rank's
ticker stops with it, so the time of its last tick tells when that was; and a rank that waited for others then would
wait still. One that was on its way when it was stopped, and one that others have gone ahead of since, holds them up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from hangwatch import words
from hangwatch.model import RankEvidence, Snapshot
from hangwatch.ranks.device_waits import shows_device_wait
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Doing

LATER_S = 3.0  # seconds without movement of any rank in which its ticker ran on; a busy machine delays ticks
_WAITS = frozenset({Doing.COLLECTIVE, Doing.WORK_WAIT, Doing.RENDEZVOUS, Doing.NEW_GROUP, Doing.DESTROY})


def stopped_later(snapshot: Snapshot) -> tuple[RankView, ...]:
    """The ranks that are stopped, and were not yet when the job had stood still for a while; they waited by then."""
    views = [RankView(entry.rank, entry, snapshot.sampled_twice) for entry in snapshot.ranks]
    if not any(view.stopped for view in views):
        return ()
    moved_at = max(snapshot.taken_at - view.evidence.still_s for view in views)
    return tuple(view for view in views if view.stopped and _waits(view) and _ticked_at(view) - moved_at >= LATER_S)


def before_the_stop(snapshot: Snapshot, later: Sequence[RankView]) -> Snapshot:
    """The evidence as it would be, had nobody stopped those ranks."""
    stopped = frozenset(view.rank for view in later)
    if not stopped:
        return snapshot
    return replace(snapshot, ranks=tuple(_running(entry, stopped) for entry in snapshot.ranks))


def sentences(later: Sequence[RankView]) -> tuple[str, ...]:
    """That they are stopped, which whoever wants the job to go on has to know."""
    return tuple(
        f"Rank {view.rank} (pid {view.pid}) is stopped (state {view.state}), since some time after the last movement."
        for view in later[: words.SHOWN]
    )


def _waits(view: RankView) -> bool:
    return view.now.doing in _WAITS or shows_device_wait(view.now)


def _ticked_at(view: RankView) -> float:
    return view.reading.ticker_at if view.reading is not None else 0.0


def _running(entry: RankEvidence, stopped: Collection[int]) -> RankEvidence:
    if entry.rank not in stopped or entry.process is None:
        return entry
    return replace(entry, process=replace(entry.process, state="S"))
