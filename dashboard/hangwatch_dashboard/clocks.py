"""Clocks of nodes differ. How much is estimated from their batches, and taken out of what they send."""

from __future__ import annotations

from collections import deque

WINDOW = 64  # batches


class ClockEstimate:
    """A node's clock minus ours.

    A batch that left at `sent` (node's clock) and came at `received` (ours) shows `sent - received`, the offset less
    the time on the way. The largest of the last minute had the shortest way, so it is nearest to the truth.
    """

    def __init__(self, offset: float = 0.0) -> None:
        self._seen: deque[float] = deque(maxlen=WINDOW)
        self._initial = offset

    def update(self, sent_at: float, received_at: float) -> None:
        self._seen.append(sent_at - received_at)

    @property
    def offset(self) -> float:
        return max(self._seen, default=self._initial)
