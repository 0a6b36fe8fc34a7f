"""Documents of large jobs, cut to what a person can look at: 10,000 ranks in full are a gigabyte.

Every rank stays in the document with phase and progress, and in the merged stack tree. Full evidence stays of the
culprits, of some of their victims, and of a rank from every place in which ranks stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangwatch.model import CaptureNote, Collectives, Incident, RankReport

MANY_RANKS = 256
FULL = 64


def thinned(incident: Incident) -> Incident:
    """The incident, with full evidence of at most `FULL` ranks where there are many."""
    if len(incident.ranks) <= MANY_RANKS:
        return incident
    kept = set(_telling(incident))
    ranks = tuple(rank if rank.rank in kept else _outline(rank) for rank in incident.ranks)
    left_out = f"full evidence of {len(ranks) - len(kept)} of {len(ranks)} ranks is left out of the report"
    notes = (*incident.capture, CaptureNote("report", False, left_out))
    return replace(incident, ranks=ranks, excerpts=incident.excerpts[:FULL], capture=notes)


def _telling(incident: Incident) -> Iterable[int]:
    """The ranks whose evidence is worth keeping, the most telling first."""
    verdict = incident.verdict
    seen: dict[int, None] = dict.fromkeys([*verdict.blamed[: FULL // 2], *verdict.victims[:8]])
    places: set[object] = set()
    for rank in incident.ranks:
        stack = next((each.frames for each in rank.stacks if each.main), ())
        place = (rank.phase, stack[:4], rank.progress.step if rank.progress else None)
        if place not in places:
            places.add(place)
            seen[rank.rank] = None
        if len(seen) >= FULL:
            break
    return list(seen)[:FULL]


def _outline(rank: RankReport) -> RankReport:
    """A rank without what is large."""
    return RankReport(
        rank=rank.rank,
        host=rank.host,
        pid=rank.pid,
        phase=rank.phase,
        progress=rank.progress,
        waiting_for=rank.waiting_for,
        collectives=Collectives(),
        exception=rank.exception,
        gpu=rank.gpu,
        still_s=rank.still_s,
        patience_s=rank.patience_s,
        held=rank.held,
        moved=rank.moved,
    )
