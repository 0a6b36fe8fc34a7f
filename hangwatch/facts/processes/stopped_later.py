"""Ranks that were stopped after the job had made its last progress: the stop does not explain the hang.

A user who finds a hung job attaches a debugger to its ranks, and schedulers stop jobs that are idle. The ticker thread
of a rank stops with it, so the time of its last tick shows when the rank was stopped. A rank that waited for other
ranks at that time still waits without the stop. A rank that was computing when it was stopped, and a rank that other
ranks have overtaken since, does hold up the job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from hangwatch import words
from hangwatch.model import RankEvidence, Snapshot
from hangwatch.ranks.device_waits import shows_device_wait
from hangwatch.ranks.view import RankView
from hangwatch.ranks.views import views_of
from hangwatch.stacks.activity import Doing

LATER_S = 3.0  # seconds between the last progress of any rank and the last tick; a busy machine delays ticks
_WAITS = frozenset({Doing.COLLECTIVE, Doing.WORK_WAIT, Doing.RENDEZVOUS, Doing.NEW_GROUP, Doing.DESTROY})


def stopped_later(snapshot: Snapshot) -> tuple[RankView, ...]:
    """The stopped ranks that still ran `LATER_S` after the last progress of any rank, and waited for other ranks."""
    stopped = [view for view in views_of(snapshot) if view.stopped]
    moved_at = snapshot.taken_at - min((entry.still_s for entry in snapshot.ranks), default=0.0)
    return tuple(view for view in stopped if _waits(view) and _ticked_at(view) - moved_at >= LATER_S)


def before_the_stop(snapshot: Snapshot, later: Sequence[RankView]) -> Snapshot:
    """The same evidence, with those ranks asleep in place of stopped."""
    stopped = frozenset(view.rank for view in later)
    if not stopped:
        return snapshot
    return replace(snapshot, ranks=tuple(_running(entry, stopped) for entry in snapshot.ranks))


def sentences(later: Sequence[RankView]) -> tuple[str, ...]:
    """One sentence for each rank: without SIGCONT it cannot continue, whatever the cause of the hang is."""
    return tuple(
        f"Rank {view.rank} (pid {view.pid}) was stopped (state {view.state}) after the last progress of the job."
        for view in later[: words.SHOWN]
    )


def _waits(view: RankView) -> bool:
    return view.now.doing in _WAITS or shows_device_wait(view.now) or view.now.launches


def _ticked_at(view: RankView) -> float:
    return view.reading.ticker_at if view.reading is not None else 0.0


def _running(entry: RankEvidence, stopped: Collection[int]) -> RankEvidence:
    if entry.rank not in stopped or entry.process is None:
        return entry
    return replace(entry, process=replace(entry.process, state="S"))
