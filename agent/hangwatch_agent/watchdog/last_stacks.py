"""Where ranks stood when they were last looked at alive, kept for those that a launcher ends.

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
        self._seen: dict[tuple[int, int | None], tuple[tuple[ThreadStack, ...], float]] = {}

    def filled(self, ranks: Iterable[RankEvidence], taken_at: float) -> tuple[RankEvidence, ...]:
        """Note where the living ranks stand at `taken_at`, in seconds since 1970, and fill in those that were ended."""
        return tuple(self._of_one(rank, taken_at) for rank in ranks)

    def _of_one(self, rank: RankEvidence, taken_at: float) -> RankEvidence:
        key, process = (rank.rank, rank.pid), rank.process
        if process is not None and process.state not in _GONE:
            if rank.stacks:
                self._seen[key] = rank.stacks, taken_at
            return rank
        stacks, seen_at = self._seen.get(key, ((), 0.0))
        ended = process is not None and process.exit_code == -signal.SIGTERM
        if rank.stacks or not stacks or not ended or _last_moved(rank) > seen_at:
            return rank
        return replace(rank, stacks=tuple(replace(stack, source=SOURCE) for stack in stacks))


def _last_moved(rank: RankEvidence) -> float:
    reading = rank.reading
    return max(reading.progress.at, reading.phase_at) if reading is not None else 0.0
