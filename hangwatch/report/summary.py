"""A report without the evidence of each rank: verdict, progress and waits of all ranks in some kilobytes.

It is an incident of the same format, so it can be shown wherever reports are shown; it cannot be judged again.
"""

from __future__ import annotations

from dataclasses import replace

from hangwatch.model import CaptureNote, Collectives, Incident, RankReport

NOTE = CaptureNote("report", False, "a summary: stacks, calls and processes are in the full report")


def of(incident: Incident) -> Incident:
    """The incident with an outline of every rank, and nothing of launchers, call sites and other processes."""
    return replace(
        incident,
        ranks=tuple(map(_outline, incident.ranks)),
        launchers=(),
        others=(),
        launched=(),
        call_sites=(),
        switches=(),
        store_keys=(),
        excerpts=(),
        capture=(*incident.capture, NOTE),
    )


def is_summary(incident: Incident) -> bool:
    """It was made by `of`: its verdict cannot be judged again."""
    return NOTE in incident.capture


def _outline(rank: RankReport) -> RankReport:
    open_calls = tuple(replace(call, frames=call.frames[:1]) for call in rank.collectives.open_calls[:4])
    return RankReport(
        rank=rank.rank,
        host=rank.host,
        pid=rank.pid,
        phase=rank.phase,
        progress=rank.progress,
        waiting_for=rank.waiting_for,
        collectives=Collectives(heads=rank.collectives.heads, open_calls=open_calls, source=rank.collectives.source),
        exception=rank.exception,
        still_s=rank.still_s,
        patience_s=rank.patience_s,
        moved=rank.moved,
        ended_at=rank.ended_at,
    )
