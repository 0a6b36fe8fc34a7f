"""Looks at the GPUs of this machine while the job runs, now and then: whose memory is on whose GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hangwatch.health import device_warnings
from hangwatch.model import HealthWarning, NodeFacts, RankEvidence, Reading
from hangwatch_agent.capture.gpu import Gpus, bound_gpu
from hangwatch_agent.shared import steady_clock

EVERY_S = 30.0  # between two looks: memory on a wrong GPU stays there, and NVML takes some milliseconds a GPU


@dataclass
class DeviceLook:
    """Reports each finding on GPU memory once. A driver that does not answer costs 2 seconds, the first time only.

    Args:
        gpus: NVML, started once for all looks and captures.
        present: whether there is a driver.
        tell: takes this node's GPUs, for a dashboard.
    """

    gpus: Gpus
    present: Callable[[], bool]
    tell: Callable[[NodeFacts], None] = lambda facts: None
    clock: Callable[[], float] = steady_clock.time
    _looked_at: float = -1e9
    _told: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)

    def __call__(self, readings: Sequence[Reading]) -> tuple[HealthWarning, ...]:
        """The warnings that are new; () between two looks."""
        now = self.clock()
        if now - self._looked_at < EVERY_S or not readings or not self.present():
            return ()
        self._looked_at = now
        facts = self._facts(readings)
        if not facts.gpus:
            return ()
        self.tell(facts)
        found = device_warnings(
            [facts], [_evidence(each, facts) for each in readings if each.identity.rank is not None]
        )
        new = tuple(each for each in found if (each.kind, each.ranks) not in self._told)
        self._told |= {(each.kind, each.ranks) for each in new}
        return new

    def _facts(self, readings: Sequence[Reading]) -> NodeFacts:
        found, _ = self.gpus.read()
        ranks = tuple(sorted(each.identity.rank for each in readings if each.identity.rank is not None))
        return NodeFacts(readings[0].identity.host, ranks, gpus=found)


def _evidence(reading: Reading, facts: NodeFacts) -> RankEvidence:
    who = reading.identity
    gpu = bound_gpu(who.pid, who.local_rank, who.environment, facts.gpus)
    return RankEvidence(who.rank or 0, facts.host, who.pid, reading=reading, gpu=gpu)
