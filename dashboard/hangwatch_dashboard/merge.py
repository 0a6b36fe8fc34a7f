"""The parts of a capture, one a node, become one snapshot of the job; nodes that did not answer are in it too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, fields, replace
from typing import Any

from hangwatch.health import merged as joined
from hangwatch.model import (
    CaptureNote,
    GroupHead,
    Identity,
    JobHealth,
    LoaderFacts,
    NodeFacts,
    RankBeat,
    RankEvidence,
    Reading,
    Snapshot,
    ThreadStack,
)
from hangwatch.wire.clocks import shifted
from hangwatch_dashboard.group_members import members_of
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.live_node import LiveNode


@dataclass(frozen=True)
class Part:
    """A node's snapshot, and its clock minus ours."""

    node: str
    snapshot: Snapshot
    clock_offset_s: float = 0.0


def merged(parts: Sequence[Part], rest: Snapshot) -> Snapshot:
    """The job's evidence: the parts on our clock, and of other nodes what `rest` has."""
    own = [replace(part, snapshot=shifted(part.snapshot, part.clock_offset_s)) for part in parts]
    snapshots = [part.snapshot for part in own]
    told = {rank.rank for snapshot in snapshots for rank in snapshot.ranks}
    ranks = [rank for snapshot in snapshots for rank in snapshot.ranks]
    ranks += [rank for rank in rest.ranks if rank.rank not in told]
    everything = (*snapshots, rest)
    own_fields = {
        "ranks": tuple(sorted(ranks, key=lambda rank: rank.rank)),
        "nodes": tuple(_nodes(own, rest)),
        "taken_at": max((snapshot.taken_at for snapshot in snapshots), default=rest.taken_at),
        "sampled_twice": all(snapshot.sampled_twice for snapshot in snapshots),
        "health": _health(snapshots, rest),
    }
    return replace(rest, **{**_others(everything), **own_fields})


def _others(snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """Every other field of a snapshot: lists joined without repetition, times the latest, durations the longest."""
    found: dict[str, Any] = {}
    for entry in fields(Snapshot):
        values = [getattr(snapshot, entry.name) for snapshot in snapshots]
        if isinstance(values[0], tuple) and entry.name not in ("ranks", "nodes"):
            found[entry.name] = _distinct(item for value in values for item in value)
        elif type(values[0]) is float:
            found[entry.name] = max(values)
    return found


def _health(snapshots: Sequence[Snapshot], rest: Snapshot) -> JobHealth | None:
    """The pace of all ranks as the batches tell it, and the nodes' own word on GPU memory, which names lines."""
    known = [snapshot.health for snapshot in snapshots if snapshot.health is not None]
    memory = tuple(each for health in known for each in health.memory)
    if rest.health is None or not rest.health.at:
        return joined(known)
    return replace(rest.health, memory=memory or rest.health.memory)


def _nodes(parts: Iterable[Part], rest: Snapshot) -> Iterable[NodeFacts]:
    seen = set()
    for part in parts:
        for facts in part.snapshot.nodes:
            seen.add(facts.host)
            yield replace(facts, clock_offset_s=part.clock_offset_s, silent_s=0.0)
    yield from (facts for facts in rest.nodes if facts.host not in seen)


def _distinct(items: Iterable[Any]) -> tuple[Any, ...]:
    result: list[Any] = []
    seen: set[str] = set()
    for item in items:
        name = repr(item)  # records with dictionaries in them cannot be hashed
        if name not in seen:
            seen.add(name)
            result.append(item)
    return tuple(result)


def remainder(job: LiveJob, answered: Set[str], now: float, told: Collection[str] = ()) -> Snapshot:
    """What is known of a job from its batches alone: all of it for nodes that did not answer.

    Nodes that were `told` to answer are not called silent: they send their evidence in the place of their batches, and
    it may be this dashboard that is slow to take it. One that has gone is silent in the next capture.
    """
    nodes = job.all_nodes
    silent = [node for node in nodes if node.name not in answered]
    ranks = [shifted(evidence(node, beat, now), node.clock.offset) for node in silent for beat in node.batch.ranks]
    gone = {node.name for node in nodes if node.is_silent(now) and node.name not in told}
    moved_at = [beat.progress.at - node.clock.offset for node, beat in job.ranked() if beat.progress.at]
    return Snapshot(
        job=job.job,
        taken_at=now,
        ranks=tuple(ranks),
        nodes=tuple(_facts(node, node.silent_s(now) if node.name in gone else 0.0) for node in nodes),
        divergences=tuple(job.divergences),
        warnings=tuple(job.warnings),
        notes=tuple(_note(node, now) for node in silent if not node.closed),
        last_progress_at=max(moved_at, default=0.0),
        health=job.health.of(job.ranked()),
    )


def _facts(node: LiveNode, silent_s: float) -> NodeFacts:
    facts = node.facts or NodeFacts(host=node.host)
    ranks = tuple(sorted(beat.rank for beat in node.batch.ranks))
    return replace(facts, ranks=ranks, silent_s=silent_s, clock_offset_s=node.clock.offset)


def _note(node: LiveNode, now: float) -> CaptureNote:
    return CaptureNote("node", False, f"{node.host} did not answer; last heard of {node.silent_s(now):.0f} s ago")


def evidence(node: LiveNode, beat: RankBeat, now: float) -> RankEvidence:
    """What a batch tells of one rank."""
    identity = next((who for who in node.hello.ranks if who.rank == beat.rank), None)
    return RankEvidence(
        rank=beat.rank,
        host=node.host,
        pid=beat.pid,
        reading=reading(node, beat, identity),
        still_s=node.still_s(beat, now),
        patience_s=beat.patience_s,
    )


def reading(node: LiveNode, beat: RankBeat, identity: Identity | None) -> Reading:
    """The reading that a beat was made from, as far as it goes."""
    size = node.hello.job.world_size
    groups = {group.id: group for group in node.hello.groups}
    return Reading(
        identity=identity or Identity(beat.rank, size, None, node.host, beat.pid, 0.0, node.batch.job),
        taken_at=node.batch.taken_at,
        phase=beat.phase,
        phase_at=beat.phase_at,
        progress=beat.progress,
        ticker_at=beat.ticker_at,
        heads=tuple(_head(groups[head.id], head) for head in beat.heads if head.id in groups),
        loaders=tuple(LoaderFacts(**vars(loader)) for loader in beat.loaders),
        times=beat.times,
    )


def _head(group: Any, head: Any) -> GroupHead:
    return GroupHead(
        name=group.name,
        members=members_of(group),
        description=group.description,
        backend=group.backend,
        issued=head.issued,
        completed=head.completed,
        sent=head.sent,
        received=head.received,
    )


class Interner:
    """Makes equal stacks of many ranks one object: 10,000 ranks that wait in one place need its frames once."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, ranks=tuple(self._rank(rank) for rank in snapshot.ranks))

    def _rank(self, rank: RankEvidence) -> RankEvidence:
        stacks, earlier = self._stacks(rank.stacks), self._stacks(rank.earlier_stacks)
        calls = replace(rank.collectives, recent=tuple(map(self._call, rank.collectives.recent)))
        return replace(rank, stacks=stacks, earlier_stacks=earlier, collectives=calls)

    def _stacks(self, stacks: tuple[ThreadStack, ...]) -> tuple[ThreadStack, ...]:
        return tuple(replace(stack, frames=self._one(stack.frames)) for stack in stacks)

    def _call(self, call: Any) -> Any:
        return replace(call, frames=self._one(call.frames), sizes=self._one(call.sizes), dtypes=self._one(call.dtypes))

    def _one(self, value: Any) -> Any:
        return self._known.setdefault(value, value)
