"""When a job that stands still will be reported, if nothing about it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hangwatch.judge import diagnose
from hangwatch.model import Judgement, RankEvidence, Snapshot, Status

HORIZON_S = 2 * 3600.0  # seconds; no countdown is shown for a report further ahead than that
_REPORTED = (Status.HUNG, Status.LINGERING)


def reported_after(
    snapshot: Snapshot, still_s: float, judge: Callable[[Snapshot], Judgement] = diagnose
) -> float | None:
    """Seconds without progress after which this evidence, unchanged, is reported; None for never, as far as is known.

    The judge itself is asked what it would say later: there is no second rule of patience that could differ from the
    first. About a dozen judgements, so for one node, and not for every second. `still_s` is for how long nothing had
    moved when the evidence was taken.
    """
    if judge(snapshot).status in _REPORTED:
        return still_s
    low, high = 0.0, HORIZON_S
    if judge(later(snapshot, high)).status not in _REPORTED:
        return None
    while high - low > 0.5:
        middle = (low + high) / 2
        if judge(later(snapshot, middle)).status in _REPORTED:
            high = middle
        else:
            low = middle
    return still_s + high


def later(snapshot: Snapshot, seconds: float) -> Snapshot:
    """The same evidence, had nothing changed for `seconds`."""
    ranks = tuple(_later(rank, seconds) for rank in snapshot.ranks)
    return replace(snapshot, taken_at=snapshot.taken_at + seconds, ranks=ranks)


def _later(rank: RankEvidence, seconds: float) -> RankEvidence:
    """A stopped process does not even tick."""
    reading, stopped = rank.reading, rank.process is not None and rank.process.state in ("T", "t")
    if reading is not None and stopped:
        reading = replace(reading, taken_at=reading.taken_at + seconds)
    return replace(rank, still_s=rank.still_s + seconds, reading=reading)
