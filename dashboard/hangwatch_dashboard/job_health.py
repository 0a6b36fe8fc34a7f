"""How a live job does: what its nodes' batches show together, which no node sees alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hangwatch.health import PaceHistory, agreed, foreign_memory, job_health
from hangwatch.model import (
    ForeignMemory,
    GroupHead,
    HealthWarning,
    Identity,
    JobHealth,
    NodeFacts,
    RankBeat,
    RankEvidence,
    Reading,
)
from hangwatch_dashboard.unhurried import unhurried

if TYPE_CHECKING:
    from hangwatch_dashboard.live import LiveNode

Ranked = Sequence[tuple["LiveNode", RankBeat]]


class LiveHealth:
    """The pace of one job's ranks, kept from look to look."""

    def __init__(self) -> None:
        self._history = PaceHistory()
        self._pace: JobHealth | None = None  # made when it is asked for: for 10,000 ranks it takes half a second
        self._hosts: dict[int, str] = {}
        self.warnings: tuple[HealthWarning, ...] = ()

    @property
    def pace(self) -> JobHealth:
        """How fast the ranks are, as of the last window."""
        if self._pace is None:
            self._pace = job_health(self._history, self._hosts)
        return self._pace

    def note(self, now: float, ranked: Ranked) -> bool:
        """Takes the ranks at one moment, by the nodes' own time. Returns whether there is something new to be told."""
        if not self._history.due(now):
            return False
        beats = [(node, beat) for node, beat in unhurried(ranked) if not beat.detached]
        times = {beat.rank: beat.times for _, beat in beats}
        ended = self._history.note(now, times, {beat.rank: (node.boot, beat.pid) for node, beat in beats})
        self._hosts, self._pace = {beat.rank: node.host for node, beat in beats}, None
        return ended and self._warn(beats, now)

    def _warn(self, ranked: Ranked, now: float) -> bool:
        """Says what the pace of ranks on several nodes tells. Of one node, its watchdog says it."""
        periods = self._history.periods()
        several = len({node.name for node, _ in ranked}) > 1
        found = agreed(*periods, _readings(ranked, now)) if several and periods is not None else ()
        changed = [(each.kind, each.ranks) for each in found] != [(each.kind, each.ranks) for each in self.warnings]
        self.warnings = found if changed else self.warnings
        return changed

    def of(self, ranked: Ranked) -> JobHealth:
        """The job's health as of the last window, with its GPU memory as of the nodes' last look."""
        return replace(self.pace, memory=memory(ranked))


def memory(ranked: Ranked) -> tuple[ForeignMemory, ...]:
    """Memory that ranks hold on GPUs of others, by what each node last said of its GPUs."""
    facts: dict[str, NodeFacts] = {}
    ranks: list[RankEvidence] = []
    for node, beat in ranked:
        if node.facts is not None and node.facts.gpus:
            facts[node.name] = node.facts
            ranks.append(RankEvidence(beat.rank, node.facts.host, beat.pid))
    return foreign_memory(tuple(facts.values()), ranks)


def _readings(ranked: Ranked, now: float) -> dict[int, Reading]:
    """As much of each rank's reading as the rules of pace ask for: its machine, and its backends."""
    backends = {
        group.id: group.backend
        for node in {id(node): node for node, _ in ranked}.values()
        for group in node.hello.groups
    }
    return {
        beat.rank: Reading(
            Identity(beat.rank, None, None, node.host, beat.pid, 0.0, ""),
            now,
            heads=tuple(GroupHead(head.id, (), backend=backends.get(head.id, "")) for head in beat.heads),
        )
        for node, beat in ranked
    }
