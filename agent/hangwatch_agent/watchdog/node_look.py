"""Looks at this machine now and then while the job runs: whose memory is on whose GPU, what its links carry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hangwatch.health import device_warnings
from hangwatch.model import GpuFacts, HealthWarning, Link, NodeFacts, RankEvidence, Reading
from hangwatch_agent.capture.gpu import Gpus, bound_gpu
from hangwatch_agent.shared import steady_clock
from hangwatch_agent.watchdog.link_look import LinkLook

EVERY_S = 30.0  # between two looks: memory on a wrong GPU stays there, and NVML takes some milliseconds a GPU


@dataclass
class NodeLook:
    """Reports each finding on GPU memory once. A driver that does not answer costs 2 seconds, the first time only.

    Args:
        gpus: NVML, started once for all looks and captures.
        present: whether there is a driver.
        links: how this machine's links have carried data since it was asked last.
        tell: takes what was seen of this node, for a dashboard: it alone knows both ends of a link.
    """

    gpus: Gpus
    present: Callable[[], bool]
    links: Callable[[Sequence[int]], tuple[Link, ...]] = field(default_factory=LinkLook)
    tell: Callable[[NodeFacts], None] | None = None
    clock: Callable[[], float] = steady_clock.time
    _looked_at: float = -1e9
    _linked: bool = False
    _told: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)

    def __call__(self, readings: Sequence[Reading]) -> tuple[HealthWarning, ...]:
        """The warnings that are new; () between two looks."""
        now = self.clock()
        if now - self._looked_at < EVERY_S or not readings:
            return ()
        self._looked_at = now
        facts = self._facts(readings)
        if self.tell is not None and (facts.gpus or facts.links or self._linked):
            self.tell(facts)
        self._linked = bool(facts.links)
        found = device_warnings(
            [facts], [_evidence(each, facts) for each in readings if each.identity.rank is not None]
        )
        new = tuple(each for each in found if (each.kind, each.ranks) not in self._told)
        self._told |= {(each.kind, each.ranks) for each in new}
        return new

    def _facts(self, readings: Sequence[Reading]) -> NodeFacts:
        gpus: tuple[GpuFacts, ...] = self.gpus.read()[0] if self.present() else ()
        ranks = tuple(sorted(each.identity.rank for each in readings if each.identity.rank is not None))
        links = self.links([each.identity.pid for each in readings]) if self.tell is not None else ()
        return NodeFacts(readings[0].identity.host, ranks, gpus=gpus, links=links)


def _evidence(reading: Reading, facts: NodeFacts) -> RankEvidence:
    who = reading.identity
    gpu = bound_gpu(who.pid, who.local_rank, who.environment, facts.gpus)
    return RankEvidence(who.rank or 0, facts.host, who.pid, reading=reading, gpu=gpu)
