"""What the API shows of a running job: pure functions from live state to plain data, as docs/api.md describes it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hangwatch.model import Incident, Phase
from hangwatch.report.words import wait
from hangwatch.wire import members
from hangwatch.wire.codec import encode
from hangwatch_dashboard import documents
from hangwatch_dashboard.group_members import members_of
from hangwatch_dashboard.history import PHASE_INDEX
from hangwatch_dashboard.live import LiveCapture, LiveJob
from hangwatch_dashboard.live_node import LiveNode
from hangwatch_dashboard.store.lists import group_of, place_of
from hangwatch_dashboard.store.rows import CaptureRow, ListedGroup, ListedIncident, Review, RunRow
from hangwatch_dashboard.store.text import clean

Document = dict[str, Any]
PHASES = [str(phase) for phase in Phase]
MOVES_S = 2.0  # batches come every second; a rank that is still for longer stands still


def job_summary(job: LiveJob, now: float) -> Document:
    """JobSummary."""
    described = job.job
    steps = [beat.progress.step for _, beat in job.ranked()]
    state = job.state(now)
    return {
        "key": job.key,
        "id": job.id,
        "name": described.name or job.id,
        "world_size": described.world_size,
        "launcher": described.launcher,
        "command": described.command,
        "started_at": job.started_at,
        "last_seen_at": job.last_seen_at,
        "closed_at": job.closed_at,
        "nodes": len(job.nodes),
        "nodes_expected": described.nodes_expected,
        "nodes_silent": sum(node.is_silent(now) for node in job.all_nodes),
        "ranks": len(steps),
        "state": state,
        "state_text": state_text(job, state),
        "steps_per_s": round(job.steps_per_s(now), 3),
        "step": min(steps, default=-1),
        "step_max": max(steps, default=-1),
        "incident": job.last_incident,
        "warnings": len(job.warnings),
        "dropped": sum(node.batch.dropped for node in job.all_nodes),
    }


def state_text(job: LiveJob, state: str) -> str:
    """The state in words: with the verdict's sentence where there is one."""
    if job.judgement is not None and state == str(job.judgement.status):
        return f"{state}: {job.judgement.verdict.summary}"
    return state


def job_detail(job: LiveJob, now: float) -> Document:
    """JobDetail."""
    capture = job.capture.row if job.capture else job.last_capture
    return {
        **job_summary(job, now),
        "judgement": encode(job.judgement),
        "judged_at": job.judged_at,
        "open_incident": job.incident or None,
        "node_list": [_node(node, now) for node in sorted(job.all_nodes, key=_by_first_rank)],
        "groups": [encode(group) for group in job.groups.values()],
        "warning_list": encode(job.warnings),
        "divergences": encode(job.divergences),
        "capture": capture_view(capture, job.capture) if capture else None,
    }


def _node(node: LiveNode, now: float) -> Document:
    return {
        "node": node.name,
        "host": node.host,
        "ranks": sorted(beat.rank for beat in node.batch.ranks),
        "silent_s": round(node.silent_s(now), 1),
        "clock_offset_s": round(node.clock.offset, 3),
        "last_seen_at": node.received_at,
        "dropped": node.batch.dropped,
        "closed": node.closed,
        "exit_code": node.batch.exit_code,
        "facts": encode(node.facts),
    }


def _by_first_rank(node: LiveNode) -> tuple[int, str]:
    return min((beat.rank for beat in node.batch.ranks), default=1 << 30), node.name


def rank_columns(job: LiveJob, now: float) -> Document:
    """RankColumns."""
    pairs = job.ranked()
    beats = [beat for _, beat in pairs]
    names = sorted(job.all_nodes, key=_by_first_rank)
    index = {id(node): position for position, node in enumerate(names)}
    fastest = max((beat.progress.step for beat in beats), default=-1)
    return {
        "job": job.key,
        "at": now,
        "phases": PHASES,
        "nodes": [node.name for node in names],
        "rank": [beat.rank for beat in beats],
        "node": [index[id(node)] for node, _ in pairs],
        "pid": [beat.pid for beat in beats],
        "phase": [PHASE_INDEX[beat.phase._value_] for beat in beats],
        "step": [beat.progress.step for beat in beats],
        "epoch": [beat.progress.epoch for beat in beats],
        "batch": [beat.progress.batch for beat in beats],
        "lag": [fastest - beat.progress.step for beat in beats],
        "still_s": [round(node.still_s(beat, now), 1) for node, beat in pairs],
        "patience_s": [round(beat.patience_s, 1) for beat in beats],
        "steps": [beat.times.steps for beat in beats],
        "data_s": [round(beat.times.data_s, 3) for beat in beats],
        "compute_s": [round(beat.times.before_sync_s, 3) for beat in beats],
        "sync_s": [round(_sync(beat.times), 3) for beat in beats],
        "last_step_s": [round(beat.times.last_s, 4) for beat in beats],
        "issued": [beat.progress.calls for beat in beats],
        "waiting_for": _waiting_for(job, now),
        "exception": {str(beat.rank): beat.exception for beat in beats if beat.exception},
        "process_state": {str(beat.rank): beat.process_state for beat in beats if beat.process_state not in _USUAL},
        "absent": members.text(absent(job, {beat.rank for beat in beats})),
    }


def job_health(job: LiveJob, now: float) -> Document:
    """HealthOfJob."""
    return {"job": job.key, "at": now, "health": encode(job.health.of(job.ranked()))}


def _waiting_for(job: LiveJob, now: float) -> dict[str, str]:
    """What each rank waits for, by rank: of a rank that stands still in the words of the verdict, if it has any."""
    verdict = job.judgement.verdict if job.judgement is not None else None
    told = {rank: end.awaits for end in verdict.ends for rank in end.ranks} if verdict is not None else {}
    for edge in verdict.waits if verdict is not None else ():
        told.update(dict.fromkeys(edge.waiting, wait(edge)))
    found = {}
    for node, beat in job.ranked():
        known = told.get(beat.rank) if node.still_s(beat, now) > MOVES_S else None
        if text := known or beat.waiting_for:
            found[str(beat.rank)] = text
    return found


_USUAL = ("", "?", "R", "S")


def _sync(times: Any) -> float:
    return float(max(0.0, times.total_s - times.data_s - times.before_sync_s))


def absent(job: LiveJob, present: set[int]) -> list[int]:
    """Ranks of the world of which nothing has been heard."""
    size = job.job.world_size
    return [] if size is None or size == len(present) else [rank for rank in range(size) if rank not in present]


def rank_detail(job: LiveJob, rank: int) -> Document | None:
    """RankDetail."""
    for node, beat in job.ranked():
        if beat.rank == rank:
            identity = next((who for who in node.hello.ranks if who.rank == rank and who.pid == beat.pid), None)
            own = [group for group in node.hello.groups if group.id in {head.id for head in beat.heads}]
            view = {"rank": rank, "node": node.name, "identity": identity, "beat": beat, "groups": own}
            return {name: encode(value) for name, value in view.items()}
    return None


def group_columns(job: LiveJob, now: float) -> Document:
    """GroupColumns."""
    heads: dict[str, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for _, beat in job.ranked():
        for head in beat.heads:
            heads[head.id][head.issued, head.completed].append(beat.rank)
    groups = job.groups
    views = [_group(groups[id], heads[id]) for id in groups if id in heads]
    return {"job": job.key, "at": now, "groups": views}


def _group(group: Any, heads: dict[tuple[int, int], list[int]]) -> Document:
    furthest = max(issued for issued, _ in heads)
    behind = sorted(rank for (issued, _), ranks in heads.items() if issued < furthest for rank in ranks)
    return {
        **encode(group),
        "size": len(members_of(group)),
        "issued": furthest,
        "completed": max(completed for _, completed in heads),
        "heads": [
            {"issued": issued, "completed": completed, "ranks": members.text(heads[issued, completed])}
            for issued, completed in sorted(heads, reverse=True)
        ],
        "behind": members.text(behind),
    }


def capture_view(row: CaptureRow, live: LiveCapture | None = None) -> Document:
    """Capture, without its document."""
    answered = sorted(live.answered) if live is not None and live.row.id == row.id else list(row.nodes_answered)
    return {
        "id": row.id,
        "job": row.run,
        "state": row.state,
        "reason": row.reason,
        "asked_at": row.asked_at,
        "done_at": row.done_at,
        "nodes_asked": list(row.nodes_asked),
        "nodes_answered": answered,
        "document": None,
    }


def incident_summary(incident: Incident, run: str, judged_by: str = "") -> Document:
    """IncidentSummary. `judged_by` is the node whose watchdog judged it alone, "" where all nodes were looked at."""
    verdict = incident.verdict
    return {
        "id": incident.id,
        "job": run,
        "job_name": clean(incident.job.name or incident.job.id, 200),
        "opened_at": incident.opened_at,
        "updated_at": incident.updated_at,
        "closed_at": incident.closed_at,
        "detected_after_s": incident.detected_after_s,
        "status": str(incident.status),
        "stage": str(incident.stage),
        "cause": clean(verdict.cause, 80),
        "hang": None if verdict.hang is None else str(verdict.hang),
        "certainty": str(verdict.certainty),
        "summary": verdict.summary[:2000],
        "fix": verdict.fix[:2000],
        "culprits": sorted({*verdict.blamed})[:1000],
        "host": next((who.host for who in verdict.culprits if who.host), ""),
        "judged_by": judged_by,
        **_site(incident),
    }


def _site(incident: Incident) -> Document:
    """The line at which the first culprit stands, and the name of all incidents of this cause there."""
    where = next((who.where for who in incident.verdict.culprits if who.where is not None), None)
    file, line = (where.file, where.line) if where is not None else ("", 0)
    name = clean(incident.job.name or incident.job.id, 200)
    group = group_of(clean(incident.verdict.cause, 80), name, file, line)
    return {"place": clean(place_of(file, line), 300), "group": group}


def listed_incident(row: ListedIncident) -> Document:
    """ListedIncident."""
    own = {"place": row.place, "group": row.group}
    return documents.summary(row.summary) | own | {"review": review_view(row.review)}


def incident_group(row: ListedGroup) -> Document:
    """IncidentGroup."""
    return {
        "group": row.group,
        "count": row.count,
        "jobs": row.jobs,
        "first_at": row.first_at,
        "last_at": row.last_at,
        "last": listed_incident(row.last),
        "review": review_view(row.review),
    }


def review_view(review: Review) -> Document:
    """IncidentReview."""
    return {"state": review.state, "note": review.note, "at": review.at}


def _of_row(row: RunRow) -> Document:
    """What is known of a run whose first summary was not stored any more: the dashboard was ended in that second."""
    known = ("key", "id", "name", "command", "started_at", "last_seen_at", "state")
    none = {"world_size": None, "launcher": "", "nodes": 0, "nodes_expected": None, "nodes_silent": 0, "ranks": 0}
    steps = {"steps_per_s": 0.0, "step": -1, "step_max": -1, "incident": None, "warnings": 0, "dropped": 0}
    return {name: getattr(row, name) for name in known} | none | steps


def stored_job(row: RunRow) -> Document:
    """JobSummary of a run that is not in memory: as it was last stored, and as still now."""
    found = _of_row(row) | (documents.job_summary(row.summary) if row.summary is not None else {})
    state = found.get("state_text") or ""
    said = state if state.startswith(row.state) else row.state
    return found | {"state": row.state, "state_text": said, "steps_per_s": 0.0, "closed_at": row.closed_at}
