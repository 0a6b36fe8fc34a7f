"""What the API answers, as types: OpenAPI and the page's TypeScript are generated from here, and tests hold both to it.

The service answers with plain data and does not pass it through these types: 10,000 ranks a second would pay for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hangwatch.model import (
    Certainty,
    Divergence,
    GroupMembers,
    HealthWarning,
    Identity,
    Incident,
    JobHealth,
    Judgement,
    NodeFacts,
    Phase,
    RankBeat,
    Stage,
    Status,
)


class JobState(StrEnum):
    """What a job is doing, by what its nodes say and what was judged."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    HUNG = "hung"
    LINGERING = "lingering"
    FAILED = "failed"
    FINISHED = "finished"
    SILENT = "silent"


class ReviewState(StrEnum):
    """What a person said of a group of incidents."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class CaptureState(StrEnum):
    """How far a capture is."""

    ASKED = "asked"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class ApiFailure:
    """Every answer with a status of 400 or more."""

    error: str


@dataclass(frozen=True)
class IncidentReview:
    """`at` is when it was said, null where nothing was."""

    state: ReviewState
    note: str
    at: float | None


@dataclass(frozen=True)
class IncidentSummary:
    """An incident without its evidence. `group` names the incidents of the same cause and line."""

    id: str
    job: str
    job_name: str
    opened_at: float
    updated_at: float
    closed_at: float | None
    detected_after_s: float
    status: Status
    stage: Stage
    cause: str
    hang: Certainty | None
    certainty: Certainty
    summary: str
    fix: str
    culprits: tuple[int, ...]
    host: str
    judged_by: str
    place: str
    group: str


@dataclass(frozen=True)
class ListedIncident(IncidentSummary):
    """An incident of the history, with what people noted of its group."""

    review: IncidentReview


@dataclass(frozen=True)
class IncidentList:
    incidents: tuple[ListedIncident, ...]
    total: int


@dataclass(frozen=True)
class IncidentGroup:
    """Incidents of one cause and line."""

    group: str
    count: int
    jobs: int
    first_at: float
    last_at: float
    last: ListedIncident
    review: IncidentReview


@dataclass(frozen=True)
class CauseCount:
    cause: str
    count: int


@dataclass(frozen=True)
class IncidentGroups:
    """`causes` are those of all stored incidents."""

    groups: tuple[IncidentGroup, ...]
    total: int
    causes: tuple[CauseCount, ...]


@dataclass(frozen=True)
class JobSummary:
    """A job in a list. `closed_at` is when its last node said goodbye."""

    key: str
    id: str
    name: str
    world_size: int | None
    launcher: str
    command: str
    started_at: float
    last_seen_at: float
    closed_at: float | None
    nodes: int
    nodes_expected: int | None
    nodes_silent: int
    ranks: int
    state: JobState
    state_text: str
    steps_per_s: float
    step: int
    step_max: int
    incident: IncidentSummary | None
    warnings: int
    dropped: int


@dataclass(frozen=True)
class JobList:
    jobs: tuple[JobSummary, ...]
    total: int


@dataclass(frozen=True)
class NodeRow:
    """A node of a job."""

    node: str
    host: str
    ranks: tuple[int, ...]
    silent_s: float
    clock_offset_s: float
    last_seen_at: float
    dropped: int
    closed: bool
    exit_code: int | None
    facts: NodeFacts | None


@dataclass(frozen=True)
class Capture:
    """A look at all nodes. `document` is there only in the answer about the one capture."""

    id: str
    job: str
    state: CaptureState
    reason: str
    asked_at: float
    done_at: float | None
    nodes_asked: tuple[str, ...]
    nodes_answered: tuple[str, ...]
    document: Incident | None


@dataclass(frozen=True)
class CaptureList:
    captures: tuple[Capture, ...]


@dataclass(frozen=True)
class JobDetail(JobSummary):
    """One job with its nodes, judgement and warnings."""

    judgement: Judgement | None
    judged_at: float | None
    open_incident: str | None
    node_list: tuple[NodeRow, ...]
    groups: tuple[GroupMembers, ...]
    warning_list: tuple[HealthWarning, ...]
    divergences: tuple[Divergence, ...]
    capture: Capture | None


@dataclass(frozen=True)
class RankColumns:
    """Columns of equal length, one entry a rank, in order of rank."""

    job: str
    at: float
    phases: tuple[Phase, ...]
    nodes: tuple[str, ...]
    rank: tuple[int, ...]
    node: tuple[int, ...]
    pid: tuple[int | None, ...]
    phase: tuple[int, ...]
    step: tuple[int, ...]
    epoch: tuple[int | None, ...]
    batch: tuple[int | None, ...]
    lag: tuple[int, ...]
    still_s: tuple[float, ...]
    patience_s: tuple[float, ...]
    steps: tuple[int, ...]
    data_s: tuple[float, ...]
    compute_s: tuple[float, ...]
    sync_s: tuple[float, ...]
    last_step_s: tuple[float, ...]
    issued: tuple[int, ...]
    waiting_for: dict[str, str]
    exception: dict[str, str]
    process_state: dict[str, str]
    absent: str


@dataclass(frozen=True)
class RankDetail:
    rank: int
    node: str
    identity: Identity | None
    beat: RankBeat
    groups: tuple[GroupMembers, ...]


@dataclass(frozen=True)
class GroupHeads:
    """Members of a group that are at the same call."""

    issued: int
    completed: int
    ranks: str


@dataclass(frozen=True)
class GroupRow:
    id: str
    name: str
    description: str
    backend: str
    members: str
    size: int
    issued: int
    completed: int
    heads: tuple[GroupHeads, ...]
    behind: str


@dataclass(frozen=True)
class GroupColumns:
    """Where the members of every process group are."""

    job: str
    at: float
    groups: tuple[GroupRow, ...]


@dataclass(frozen=True)
class History:
    """The outer index is the moment, the inner one the rank; null where nothing is known of it then."""

    job: str
    phases: tuple[Phase, ...]
    rank: tuple[int, ...]
    at: tuple[float, ...]
    step: tuple[tuple[int | None, ...], ...]
    phase: tuple[tuple[int | None, ...], ...]
    step_s: tuple[tuple[float | None, ...], ...]
    data_s: tuple[tuple[float | None, ...], ...]
    still_s: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class HealthOfJob:
    """How fast the ranks and nodes of a running job are."""

    job: str
    at: float
    health: JobHealth


@dataclass(frozen=True)
class Session:
    required: bool
    signed_in: bool
    may_delete: bool


@dataclass(frozen=True)
class About:
    version: str
    server_time: float
    store: str
    nodes: int
    ranks: int


@dataclass(frozen=True)
class Health:
    status: str


@dataclass(frozen=True)
class Taken:
    """A capture is in the store."""

    accepted: bool


@dataclass(frozen=True)
class TakenIncident(Taken):
    """An incident is in the store, under the name `incident`; null where another one of the job stands for it."""

    incident: str | None
