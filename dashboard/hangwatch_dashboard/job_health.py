"""How a live job does: what its nodes' batches show together, which no node sees alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangwatch.health import (
    Confirmed,
    LinkWatch,
    PaceHistory,
    agreed,
    forecasts,
    foreign_memory,
    job_health,
    periods,
    with_plan,
)
from hangwatch.model import (
    ForeignMemory,
    GroupBeat,
    GroupHead,
    GroupMembers,
    HealthWarning,
    Identity,
    JobHealth,
    NodeFacts,
    RankBeat,
    RankEvidence,
    Reading,
)
from hangwatch_dashboard.group_members import members_of
from hangwatch_dashboard.live_node import LiveNode
from hangwatch_dashboard.unhurried import unhurried

Ranked = Sequence[tuple[LiveNode, RankBeat]]


class LiveHealth:
    """The pace of one job's ranks, kept from look to look."""

    def __init__(self) -> None:
        self._history = PaceHistory()
        self._hosts: dict[int, str] = {}
        self._pace: tuple[object, JobHealth] | None = None  # with the windows that it was made of
        self._paces: tuple[HealthWarning, ...] = ()
        self._forecasts = Confirmed()
        self._plans: tuple[object, ...] = ()
        self._links = LinkWatch()
        self._facts: tuple[NodeFacts, ...] = ()

    @property
    def warnings(self) -> tuple[HealthWarning, ...]:
        """What only the nodes together show."""
        link = self._links.told
        return (*self._forecasts.told.values(), *self._paces, *((link,) if link is not None else ()))

    @property
    def pace(self) -> JobHealth:
        """How fast the ranks are, as of the last window.

        Made when it is asked for, by any thread: for 10,000 ranks it takes half a second. A window may end meanwhile.
        """
        windows, known = self._history.windows, self._pace
        if known is not None and known[0] is windows:
            return known[1]
        made = job_health(windows, self._hosts)
        self._pace = windows, made
        return made

    def note(self, now: float, ranked: Ranked) -> bool:
        """Takes the ranks at one moment, by the nodes' own time. Returns whether there is something new to be told."""
        nodes = list({id(node): node for node, _ in unhurried(ranked)}.values())
        told = [self._compare(nodes, ranked, now), self._compare_links(nodes), self._note_pace(now, ranked)]
        return any(told)

    def _compare(self, nodes: Sequence[LiveNode], ranked: Ranked, now: float) -> bool:
        """Compares the plans of ranks on several nodes; what differs for long enough is told."""
        plans = tuple(node.hello for node in nodes)
        if len(nodes) > 1 and list(map(id, plans)) != list(map(id, self._plans)):
            self._plans = plans
            self._forecasts.note(_forecasts(nodes, ranked, now), now)
        return bool(self._forecasts.due(now))

    def _compare_links(self, nodes: Sequence[LiveNode]) -> bool:
        """Compares the links of several nodes, when a node has looked at its own again."""
        facts = tuple(node.facts for node in nodes if node.facts is not None and node.facts.links)
        if list(map(id, facts)) == list(map(id, self._facts)):
            return False
        self._facts = facts
        return self._links.note(facts)

    def _note_pace(self, now: float, ranked: Ranked) -> bool:
        if not self._history.due(now):
            return False
        beats = [(node, beat) for node, beat in unhurried(ranked) if not beat.detached]
        times = {beat.rank: beat.times for _, beat in beats}
        self._hosts = {beat.rank: node.host for node, beat in beats}
        ended = self._history.note(now, times, {beat.rank: (node.boot, beat.pid) for node, beat in beats})
        return ended and self._warn(beats, now)

    def _warn(self, ranked: Ranked, now: float) -> bool:
        """Says what the pace of ranks on several nodes tells. Of one node, its watchdog says it."""
        several = len({node.name for node, _ in ranked}) > 1
        judged = periods(self._history.windows) if several else None
        found = agreed(*judged, _readings(ranked, now)) if judged is not None else ()
        changed = [(each.kind, each.ranks) for each in found] != [(each.kind, each.ranks) for each in self._paces]
        self._paces = found if changed else self._paces
        return changed

    def of(self, ranked: Ranked) -> JobHealth:
        """The job's health as of the last window, with its GPU memory as of the nodes' last look."""
        return replace(self.pace, memory=memory(ranked))


def _forecasts(nodes: Sequence[LiveNode], ranked: Ranked, now: float) -> tuple[HealthWarning, ...]:
    known = {(node.name, plan.rank): plan for node in nodes for plan in node.hello.plans}
    own = {beat.rank: plan for node, beat in ranked if (plan := known.get((node.name, beat.rank))) is not None}
    readings = _readings(ranked, now)
    full = {rank: with_plan(readings[rank], plan) for rank, plan in own.items()}
    return forecasts(full, {rank: plan.waits for rank, plan in own.items()})


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
    """As much of each rank's reading as the rules of pace and plans ask for: machine, settings, groups, step."""
    nodes = {id(node): node for node, _ in ranked}.values()
    groups = {group.id: group for node in nodes for group in node.hello.groups}
    identities = {(node.name, each.rank, each.pid): each for node in nodes for each in node.hello.ranks}
    found: dict[int, Reading] = {}
    for node, beat in unhurried(ranked):
        stranger = Identity(beat.rank, None, None, node.host, beat.pid, 0.0, "")
        identity = identities.get((node.name, beat.rank, beat.pid), stranger)
        heads = tuple(_head(groups[head.id], head) for head in beat.heads if head.id in groups)
        found[beat.rank] = Reading(identity, now, progress=beat.progress, heads=heads)
    return found


def _head(group: GroupMembers, head: GroupBeat) -> GroupHead:
    return GroupHead(group.name, members_of(group), backend=group.backend, issued=head.issued, completed=head.completed)
