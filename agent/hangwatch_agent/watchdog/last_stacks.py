"""Where ranks stood when they were last looked at alive, and whether they computed, kept for those a launcher ends.

When torch's timeout ends a rank that waits, the launcher ends the others: also the one that was waited for, which
leaves no words of its own. It was seen while the job stood still, and its board says whether it has moved since.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import replace

from hangwatch.model import RankEvidence, ThreadStack

_GONE = frozenset("XZ")
SOURCE = "last look"


class LastStacks:
    """The newest stacks of each living rank, by its number and pid."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int | None], tuple[tuple[ThreadStack, ...], float | None, float]] = {}

    def filled(self, ranks: Iterable[RankEvidence], taken_at: float) -> tuple[RankEvidence, ...]:
        """Note where the living ranks stand at `taken_at`, in seconds since 1970, and fill in those that were ended."""
        return tuple(self._of_one(rank, taken_at) for rank in ranks)

    def _of_one(self, rank: RankEvidence, taken_at: float) -> RankEvidence:
        key, process = (rank.rank, rank.pid), rank.process
        if process is not None and process.state not in _GONE:
            if rank.stacks:
                self._seen[key] = rank.stacks, process.cpu_delta_s, taken_at
            return rank
        stacks, cpu_delta_s, seen_at = self._seen.get(key, ((), None, 0.0))
        if process is None or process.exit_code != -signal.SIGTERM:
            return rank
        if rank.stacks or not stacks or _last_moved(rank) > seen_at:
            return rank
        told = tuple(replace(stack, source=SOURCE) for stack in stacks)
        return replace(rank, stacks=told, process=replace(process, cpu_delta_s=cpu_delta_s))


def _last_moved(rank: RankEvidence) -> float:
    reading = rank.reading
    return max(reading.progress.at, reading.phase_at) if reading is not None else 0.0
