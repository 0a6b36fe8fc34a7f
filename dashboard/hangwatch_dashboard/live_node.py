"""One node of a running job as this process knows it: its last batch, and whether it has fallen silent."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.model import NodeBatch, NodeFacts, NodeHello, RankBeat
from hangwatch_dashboard.clocks import ClockEstimate

SILENT_AFTER_S = 5.0  # five batches missing


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
    listened_since: float = 0.0  # when this process began to listen, of a node that it knows from the store only

    @property
    def host(self) -> str:
        return self.hello.host

    @property
    def closed(self) -> bool:
        return self.batch.closing

    def silent_s(self, now: float) -> float:
        """Since when nothing has been heard; 0 for a node that has said goodbye."""
        return 0.0 if self.closed else max(0.0, now - self.received_at)

    def is_silent(self, now: float) -> bool:
        """Whether so much has been missed that its silence is evidence, while this process listened."""
        return min(self.silent_s(now), now - self.listened_since) > SILENT_AFTER_S

    def can_answer(self, now: float) -> bool:
        """Whether it may be asked for its evidence, and waited for."""
        return not self.closed and not self.is_silent(now)

    def still_s(self, beat: RankBeat, now: float) -> float:
        """For how long a rank has stood still by now, also where its node has fallen silent; by its end, after it."""
        return beat.still_s if self.closed else beat.still_s + max(0.0, now - self.received_at)

    @property
    def taken_at(self) -> float:
        """When its last batch was made, by our clock; long before it came where a spool is sent again."""
        return self.batch.taken_at - self.clock.offset
