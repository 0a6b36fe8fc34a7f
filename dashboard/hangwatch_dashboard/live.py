"""Running jobs as this process knows them: the last batch of every node, and what has been made of it.

Everything here can be had again from the store; nothing here is the only copy.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hangwatch.model import (
    Certainty,
    Divergence,
    GroupMembers,
    HealthWarning,
    Job,
    Judgement,
    Phase,
    RankBeat,
    Status,
)
from hangwatch_dashboard import live_node
from hangwatch_dashboard.history import History
from hangwatch_dashboard.job_health import LiveHealth
from hangwatch_dashboard.live_node import LiveNode
from hangwatch_dashboard.store.rows import CaptureRow
from hangwatch_dashboard.unhurried import unhurried

LOST_AFTER_S = 30.0
RATE_WINDOW_S = 10.0
RETELL_S = 3.0  # the answer that told a node may have been lost
TELL_AT_ONCE, TELL_PER_S = 64, 250.0  # nodes that are told of a capture
TELL_ALL_S = 4.0  # at the latest, however many they are
MOST_STEPS = 64  # moments of which the slowest rank's step is kept
LEAVING = (Phase.DESTROYED, Phase.MAIN_DONE, Phase.ATEXIT, Phase.FINALIZING)


@dataclass
class LiveCapture:
    """A capture under way: which nodes have been told when, and which have answered."""

    row: CaptureRow
    begun_at: float = 0.0  # by the clock of this process
    told: dict[str, float] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    shown_at: float = 0.0
    heard_at: float = 0.0  # when the last answer came

    def __post_init__(self) -> None:
        self.asked = frozenset(self.row.nodes_asked)

    @property
    def waiting(self) -> frozenset[str]:
        return self.asked - self.answered

    @property
    def complete(self) -> bool:
        return len(self.answered) == len(self.asked)

    def may_tell(self, node: str, now: float) -> bool:
        """Whether a node is to be told now: again after a while, and not all for the first time at the same moment.

        The answers of a thousand nodes in one second would keep their batches waiting.
        """
        if node in self.told:
            return now - self.told[node] >= RETELL_S
        per_s = max(TELL_PER_S, len(self.asked) / TELL_ALL_S)
        return len(self.told) < TELL_AT_ONCE + (now - self.begun_at) * per_s

    def waits_for(self, node: str) -> bool:
        return node in self.asked and node not in self.answered


@dataclass
class LiveJob:
    """One run of a job."""

    key: str
    id: str
    started_at: float
    nodes: dict[str, LiveNode] = field(default_factory=dict)
    judgement: Judgement | None = None
    judged_at: float | None = None
    incident: str = ""  # id of the open one
    judging: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while a judgement is taken and stored
    unstored: int = 0  # judgements of this process on their way to the store
    stored: int = 0  # those that have been there
    last_incident: dict[str, object] | None = None  # IncidentSummary
    capture: LiveCapture | None = None
    last_capture: CaptureRow | None = None
    history: History = field(default_factory=History)
    health: LiveHealth = field(default_factory=LiveHealth)
    revision: int = 0  # of the batches
    facts_revision: int = 0  # of everything else
    last_seen_at: float = 0.0  # when the last batch came, kept for every node that joins asks; before, the start
    beats: int = 0  # in the last batches of all nodes: about the number of ranks, without a look at each
    _runs: tuple[int, list[tuple[str, int, int]]] | None = None  # of that layout: where each rank is, in order
    _layout: int = 0  # which nodes there are, and which ranks each has
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of the nodes and their layout
    _steps: tuple[tuple[float, int], ...] = ()  # replaced and never changed: any thread may read what it took

    def __post_init__(self) -> None:
        self.last_seen_at = self.last_seen_at or self.started_at

    def apply(self, node: LiveNode) -> None:
        """Takes a node's newest state."""
        if node.received_at - self.last_seen_at > live_node.SILENT_AFTER_S:
            self.listen_from(node.received_at)  # no node came through: that speaks of the way here, not of the nodes
        before = self.nodes.get(node.name)
        moved = before is None or _ranks_of(before) != _ranks_of(node)
        with self._lock:
            self.nodes[node.name] = node
            self._layout += moved
        self.beats += len(node.batch.ranks) - (len(before.batch.ranks) if before is not None else 0)
        self.last_seen_at = max(self.last_seen_at, node.received_at)
        self.revision += 1
        if before is None or _noteworthy(before) != _noteworthy(node):
            self.facts_revision += 1

    def listen_from(self, now: float) -> None:
        """From now on its nodes can reach this process, each after its own pause: none of them is silent before."""
        for node in self.all_nodes:
            node.listened_since = now

    @contextmanager
    def storing(self) -> Iterator[None]:
        """While this lasts, what the store says of the job's judgement may be older than what this process knows."""
        self.unstored += 1
        try:
            yield
        finally:
            self.unstored -= 1
            self.stored += 1

    def as_now(self) -> LiveJob:
        """The job as it is at this moment, for a thread that looks at it: batches and judgements come meanwhile.

        Its history and its pace are the job's own, which any thread may read.
        """
        return replace(self, nodes=self.nodes.copy())

    @property
    def all_nodes(self) -> list[LiveNode]:
        """The nodes as they are now: a list of its own, for the thread that notes while batches come."""
        return list(self.nodes.values())

    @property
    def job(self) -> Job:
        """What the nodes say of the job; the first of them that know."""
        hellos = [node.hello.job for node in self.all_nodes]
        first = min(hellos, key=lambda job: job.started_at, default=Job(self.id, self.id, None))
        sizes = [job.world_size for job in hellos if job.world_size is not None]
        return first if first.world_size is not None or not sizes else replace(first, world_size=max(sizes))

    def ranked(self) -> list[tuple[LiveNode, RankBeat]]:
        """Every rank with its node, in order of rank; of two that claim one rank, the one that has moved last.

        Not kept: old beats would live as long as the list, and go all at once.
        """
        with self._lock:
            nodes, layout = self.nodes.copy(), self._layout
        # Where each rank is remains the same from second to second: 10,000 need not be sorted every time.
        known = self._runs  # which another thread may replace at any moment
        if known is not None and known[0] == layout:
            return [
                (node, beat)
                for name, first, end in unhurried(known[1])
                for node in (nodes[name],)
                for beat in node.batch.ranks[first:end]
            ]
        found: dict[int, tuple[str, int, RankBeat]] = {}
        for name, node in nodes.items():
            for index, beat in enumerate(node.batch.ranks):
                other = found.get(beat.rank)
                if other is None or other[2].progress.at < beat.progress.at:
                    found[beat.rank] = (name, index, beat)
        places = [found[rank] for rank in sorted(found)]
        one_each = sum(len(node.batch.ranks) for node in nodes.values()) == len(found)
        self._runs = (layout, _in_runs(places)) if one_each else None
        return [(nodes[name], beat) for name, _, beat in places]

    @property
    def groups(self) -> dict[str, GroupMembers]:
        return {group.id: group for node in self.all_nodes for group in node.hello.groups}

    @property
    def warnings(self) -> list[HealthWarning]:
        """What the nodes warn of, and what only all of them together show, which replaces a node's own of its kind."""
        own = self.health.warnings
        kinds = {warning.kind for warning in own}
        told = [each for node in self.all_nodes for each in node.batch.warnings if each.kind not in kinds]
        return _distinct([*own, *told])

    @property
    def divergences(self) -> list[Divergence]:
        return _distinct([each for node in self.all_nodes for each in node.batch.divergences])

    @property
    def over(self) -> bool:
        """Whether every node has said goodbye."""
        return bool(self.nodes) and all(node.closed for node in self.all_nodes)

    @property
    def ended(self) -> bool:
        """Whether every rank has left as ranks should: its process is gone, and its last words were of leaving."""
        ranked = self.ranked()
        return bool(ranked) and all(
            beat.phase in LEAVING and (node.closed or beat.process_state in ("X", "Z")) for node, beat in ranked
        )

    @property
    def ended_well(self) -> bool:
        """Whether the job is over and came to its end: exit code 0, or every rank left where no code is known."""
        if not self.over or any(node.batch.exit_code for node in self.all_nodes):
            return False
        return self.ended or all(node.batch.exit_code == 0 for node in self.all_nodes)

    @property
    def on_one_node(self) -> bool:
        """Whether one watchdog sees all of the job, and judges it by itself."""
        if len(self.nodes) != 1:
            return False
        (node,) = self.nodes.values()
        size = self.job.world_size
        ranks = {beat.rank for beat in node.batch.ranks} | {who.rank for who in node.hello.ranks}
        return self.job.nodes_expected == 1 or size is None or len(ranks - {None}) >= size

    @property
    def settled(self) -> bool:
        """Whether another look can teach nothing: all nodes together have proven the cause, and no rank has moved."""
        if not self.incident or self.judgement is None or self.judgement.verdict.certainty is not Certainty.PROVEN:
            return False
        return not (self.last_incident or {}).get("judged_by")

    @property
    def closed_at(self) -> float | None:
        """When the last node said goodbye; None while one has not."""
        return self.last_seen_at if self.over else None

    @property
    def ended_badly(self) -> bool:
        """Whether the job is over, and a node left with an exit code other than 0."""
        return self.over and any(node.batch.exit_code for node in self.all_nodes)

    def note(self, now: float) -> bool:
        """Adds this moment to the history. Returns whether it shows something new: a matter of `facts_revision`.

        Not counted here: the event loop counts, too, and of two threads at once one would be lost.
        """
        if self.over:
            return False
        ranked = self.ranked()
        self.history.note(now, [beat for _, beat in ranked])
        news = self.health.note(max((node.taken_at for node in self.all_nodes), default=now), ranked)
        slowest = min((beat.progress.step for _, beat in unhurried(ranked)), default=-1)
        at = next((node.taken_at for node, beat in ranked if beat.progress.step == slowest), now)
        if not self._steps or at > self._steps[-1][0]:
            self._steps = (*self._steps, (at, slowest))[-MOST_STEPS:]
        return news

    def steps_per_s(self, now: float) -> float:
        """Over ten seconds of the nodes' own time: batches out of a spool come faster than they were made."""
        steps = self._steps
        if self.over or now - self.last_seen_at > RATE_WINDOW_S or not steps:
            return 0.0
        last_at, last = steps[-1]
        first_at, first = next(entry for entry in steps if last_at - entry[0] <= RATE_WINDOW_S)
        return max(0.0, (last - first) / (last_at - first_at)) if last_at > first_at else 0.0

    def _lost(self, now: float) -> bool:
        quiet = now - self.last_seen_at > LOST_AFTER_S
        return quiet and all(node.heard or node.is_silent(now) for node in self.all_nodes)

    def state(self, now: float) -> str:
        """One of the states of docs/api.md."""
        if self.over:
            codes = [node.batch.exit_code for node in self.all_nodes]
            return "failed" if any(codes) else "finished"
        status = self.judgement.status if self.judgement is not None else None
        if self._lost(now) and not (self.incident and status is Status.FAILED):
            return "silent"
        if status is not None and (self.incident or status is Status.WAITING):
            return str(status)
        beats = (beat for node in self.all_nodes for beat in node.batch.ranks)
        moving = any(beat.progress.step >= 0 or beat.progress.ticks for beat in beats)
        return "running" if moving else "starting"


def _ranks_of(node: LiveNode) -> list[int]:
    return [beat.rank for beat in node.batch.ranks]


def _in_runs(places: list[tuple[str, int, RankBeat]]) -> list[tuple[str, int, int]]:
    """The same as nodes, each with the first and the end of what comes next of its beats."""
    runs: list[tuple[str, int, int]] = []
    for name, index, _ in places:
        if runs and runs[-1][0] == name and runs[-1][2] == index:
            runs[-1] = (name, runs[-1][1], index + 1)
        else:
            runs.append((name, index, index + 1))
    return runs


def _noteworthy(node: LiveNode) -> tuple[object, ...]:
    """What of a node is worth a `job` event when it changes."""
    return node.hello, node.batch.warnings, node.batch.divergences, node.closed, node.facts is None


def _distinct(items: list[HealthWarning] | list[Divergence]) -> list:  # type: ignore[type-arg]
    result = []
    for item in items:
        if item not in result:
            result.append(item)
    return result
