"""An incident from a judgement and its evidence, and the evidence back from incidents, with nothing lost.

The way back lets `hangwatch analyze` merge the files of several nodes and judge the job as a whole.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import TypeVar

from hangwatch.health import merged
from hangwatch.model import (
    ChainEnd,
    Incident,
    Job,
    Judgement,
    NodeFacts,
    Progress,
    RankEvidence,
    RankReport,
    Snapshot,
    Status,
    Verdict,
    Wait,
)
from hangwatch.report import words
from hangwatch.stacks import tree as stack_tree
from hangwatch.words import inside

T = TypeVar("T")


# What an incident keeps of a snapshot under the same name.
_KEPT = tuple({entry.name for entry in fields(Snapshot)} & {entry.name for entry in fields(Incident)} - {"ranks"})


def new_id() -> str:
    """A name for an incident, short enough to be said aloud."""
    return secrets.token_hex(4)


def incident(
    judgement: Judgement,
    snapshot: Snapshot,
    *,
    id: str,
    opened_at: float,
    detected_after_s: float | None = None,
    updated_at: float | None = None,
    closed_at: float | None = None,
    hangwatch_version: str = "",
) -> Incident:
    """The incident that `judgement` of `snapshot` makes.

    Args:
        id: its name, from `new_id()`; kept when the incident is written again.
        opened_at: when the hang was noticed, seconds since 1970.
        detected_after_s: how long nothing had moved then; by default from the snapshot's last progress.
        updated_at: when it was last written; by default when the evidence was taken.
    """
    if detected_after_s is None:
        since = snapshot.last_progress_at or snapshot.job.started_at or opened_at
        detected_after_s = max(opened_at - since, 0.0)
    return Incident(
        id=id,
        opened_at=opened_at,
        detected_after_s=detected_after_s,
        status=judgement.status,
        stage=judgement.stage,
        verdict=judgement.verdict,
        ranks=_reports(snapshot.ranks, judgement.verdict),
        stack_tree=stack_tree.of_ranks(snapshot.ranks),
        capture=snapshot.notes,
        closed_at=closed_at,
        updated_at=snapshot.taken_at if updated_at is None else updated_at,
        hangwatch_version=hangwatch_version,
        **{name: getattr(snapshot, name) for name in _KEPT},
    )


def recovered(incident: Incident, closed_at: float) -> Incident:
    """The incident after movement has resumed; its verdict stays, as what was believed then."""
    return replace(incident, status=Status.RECOVERED, closed_at=closed_at, updated_at=closed_at)


# Fields that a rank's evidence and its report share under one name.
_SHARED = tuple(
    {entry.name for entry in fields(RankEvidence)} & {entry.name for entry in fields(RankReport)} - {"reading"}
)


def _reports(ranks: Iterable[RankEvidence], verdict: Verdict) -> tuple[RankReport, ...]:
    """All ranks; thousands of them share few edges, which are gone through once."""
    edges: dict[int, list[Wait]] = {}
    for edge in verdict.waits:
        for rank in edge.waiting:
            edges.setdefault(rank, []).append(edge)
    ends = {rank: end for end in verdict.ends for rank in end.ranks}
    return tuple(_report(rank, edges.get(rank.rank, ()), ends.get(rank.rank)) for rank in ranks)


def _report(rank: RankEvidence, waits: Sequence[Wait], end: ChainEnd | None) -> RankReport:
    reading = rank.reading
    return RankReport(
        phase=str(reading.phase) if reading else "unknown",
        progress=reading.progress if reading else None,
        waiting_for="; ".join(map(words.wait, waits)) or (end.awaits if end is not None else _inside(rank)),
        loader=reading.loaders if reading else (),
        exception=reading.exception if reading else None,
        reading=replace(reading, progress=Progress(), loaders=(), exception=None) if reading else None,
        **{name: getattr(rank, name) for name in _SHARED},
    )


def _inside(rank: RankEvidence) -> str:
    """What a rank of which the verdict tells nothing is inside of; "" for one that has ended."""
    if rank.ended_at is not None or (rank.process is not None and rank.process.state in ("X", "Z")):
        return ""
    reading = rank.reading
    calls = rank.collectives.open_calls or (reading.open_calls if reading is not None else ())
    return inside(calls, reading.loaders if reading is not None else ())


def evidence_of(report: RankReport) -> RankEvidence:
    """The evidence that a rank's report was made from."""
    reading = report.reading
    if reading is not None:
        progress = report.progress or Progress()
        reading = replace(reading, progress=progress, loaders=report.loader, exception=report.exception)
    return RankEvidence(reading=reading, **{name: getattr(report, name) for name in _SHARED})


def snapshot_of(incidents: Sequence[Incident]) -> Snapshot:
    """The evidence of incidents of one job, merged: one per node; of several of one node the newest counts.

    Raises ValueError for no incident and for incidents of different jobs.
    """
    if len(jobs := {incident.job.id for incident in incidents}) != 1:
        raise ValueError(f"incidents of one job are wanted, found {len(jobs)} jobs")
    kept = _without_outdated(incidents)
    return Snapshot(
        job=_job([incident.job for incident in kept]),
        taken_at=max(incident.taken_at for incident in kept),
        ranks=_ranks(kept),
        launchers=_distinct(incident.launchers for incident in kept),
        others=_distinct(incident.others for incident in kept),
        nodes=_nodes(kept),
        divergences=_distinct(incident.divergences for incident in kept),
        warnings=_distinct(incident.warnings for incident in kept),
        notes=_distinct(incident.capture for incident in kept),
        last_progress_at=max(incident.last_progress_at for incident in kept),
        sampled_twice=all(incident.sampled_twice for incident in kept),
        launched=_distinct(incident.launched for incident in kept),
        start_patience_s=max(incident.start_patience_s for incident in kept),
        excerpts=_distinct(incident.excerpts for incident in kept),
        call_sites=_distinct(incident.call_sites for incident in kept),
        switches=_distinct(incident.switches for incident in kept),
        store_keys=_distinct(incident.store_keys for incident in kept),
        health=merged([incident.health for incident in kept if incident.health is not None]),
    )


def _without_outdated(incidents: Sequence[Incident]) -> list[Incident]:
    """Newest first, without those whose ranks newer ones tell of: processes of an older hang mislead."""
    kept: list[Incident] = []
    told: set[int] = set()
    for incident in sorted(incidents, key=lambda incident: -incident.taken_at):
        own = {rank.rank for rank in incident.ranks}
        if not own or own - told:
            kept.append(incident)
            told |= own
    return kept


def _ranks(incidents: Sequence[Incident]) -> tuple[RankEvidence, ...]:
    if len(incidents) == 1:  # two claimants of one rank are evidence within one snapshot
        return tuple(evidence_of(report) for report in incidents[0].ranks)
    newest: dict[int, list[RankReport]] = {}
    for incident in incidents:
        told = set(newest)
        for report in incident.ranks:
            if report.rank not in told:
                newest.setdefault(report.rank, []).append(report)
    return tuple(evidence_of(report) for rank in sorted(newest) for report in newest[rank])


def _nodes(incidents: Sequence[Incident]) -> tuple[NodeFacts, ...]:
    if len(incidents) == 1:
        return incidents[0].nodes
    newest: dict[str, NodeFacts] = {}
    for node in chain.from_iterable(incident.nodes for incident in incidents):
        known = newest.setdefault(node.host, node)
        newest[node.host] = replace(known, ranks=tuple(sorted({*known.ranks, *node.ranks})))
    return tuple(newest.values())


def _job(jobs: Sequence[Job]) -> Job:
    """The job as the nodes together know it: on each point the first statement of any node."""
    started = [job.started_at for job in jobs if job.started_at]
    return replace(
        jobs[0],
        world_size=next((job.world_size for job in jobs if job.world_size is not None), None),
        launcher=next((job.launcher for job in jobs if job.launcher), ""),
        command=next((job.command for job in jobs if job.command), ""),
        nodes_expected=next((job.nodes_expected for job in jobs if job.nodes_expected is not None), None),
        started_at=min(started, default=0.0),
    )


def _distinct(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    """The parts in order; what a later part repeats of earlier ones is left out."""
    result: list[T] = []
    for part in parts:
        known = list(result)
        result.extend(item for item in part if item not in known)
    return tuple(result)
