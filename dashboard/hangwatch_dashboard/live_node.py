"""One node of a running job as this process knows it: its last batch, and whether it has fallen silent."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.model import NodeBatch, NodeFacts, NodeHello, RankBeat
from hangwatch_dashboard.clocks import ClockEstimate

SILENT_AFTER_S = 5.0  # five batches missing
BACKOFF_S = 30.0  # the longest that a node waits before it tries again to reach a dashboard that it could not reach


@dataclass
class LiveNode:
    """One node of a job: its last batch, and the last hello and facts."""

    name: str
    boot: str
    batch: NodeBatch
    hello: NodeHello
    received_at: float
    clock: ClockEstimate
    facts: NodeFacts | None = None
    stored: int = -1  # the last sequence number that is in the store
    listened_since: float = 0.0  # when it could reach this process again, after a restart or with nothing from any node

    @property
    def host(self) -> str:
        return self.hello.host

    @property
    def closed(self) -> bool:
        return self.batch.closing

    def silent_s(self, now: float) -> float:
        """Since when nothing has been heard; 0 for a node that has said goodbye."""
        return 0.0 if self.closed else max(0.0, now - self.received_at)

    @property
    def heard(self) -> bool:
        """Whether anything has come since it could reach this process; before that, its silence says nothing."""
        return self.received_at >= self.listened_since

    def is_silent(self, now: float) -> bool:
        """Whether so much has been missed that its silence is evidence: it had the time to try again and be heard."""
        grace = 0.0 if self.heard else BACKOFF_S
        return min(self.silent_s(now), now - self.listened_since - grace) > SILENT_AFTER_S

    def can_answer(self, now: float) -> bool:
        """Whether it may be asked for its evidence, and waited for."""
        return not self.closed and not self.is_silent(now)

    def still_s(self, beat: RankBeat, now: float) -> float:
        """For how long a rank has stood still by now, also where its node has fallen silent; as last heard of a node
        that has ended, and of one that has yet to reach this process again: it may have moved meanwhile."""
        known = self.closed or not self.heard
        return beat.still_s if known else beat.still_s + max(0.0, now - self.received_at)

    @property
    def taken_at(self) -> float:
        """When its last batch was made, by our clock; long before it came where a spool is sent again."""
        return self.batch.taken_at - self.clock.offset
