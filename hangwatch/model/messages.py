"""What nodes and the dashboard send to each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.model.board import GroupMade, Identity, LoaderFacts, Progress, StepTimes
from hangwatch.model.collective import Divergence
from hangwatch.model.evidence import Job, NodeFacts, Snapshot
from hangwatch.model.health import HealthWarning
from hangwatch.model.incident import Incident
from hangwatch.model.terms import Phase


@dataclass(frozen=True)
class GroupMembers:
    """A process group by its short `id`, a digest of name and members: batches need not repeat the members.

    `members` is text in ranges, in group order: "0-3,8,7" (a group of 10,000 ranks is "0-9999").
    """

    id: str
    name: str
    members: str
    description: str = ""
    backend: str = ""


@dataclass(frozen=True)
class GroupBeat:
    """How far a rank is in the group `id`; counts as in `GroupHead`."""

    id: str
    issued: int = -1
    completed: int = -1
    sent: int = 0
    received: int = 0


@dataclass(frozen=True)
class LoaderBeat:
    """The moving part of `LoaderFacts`."""

    index: int
    length: int | None = None
    epoch: int = -1
    drawn: int = 0
    exhausted: bool = False
    left: bool = False
    inside_next: bool = False
    num_workers: int = 0
    training: bool = True


@dataclass(frozen=True)
class RankBeat:
    """One rank in a batch: the small and moving part of its `Reading`, and what the watchdog makes of it."""

    rank: int
    pid: int
    phase: Phase
    phase_at: float
    progress: Progress
    ticker_at: float = 0.0
    still_s: float = 0.0
    patience_s: float = 0.0
    waiting_for: str = ""
    heads: tuple[GroupBeat, ...] = ()
    loaders: tuple[LoaderBeat, ...] = ()
    times: StepTimes = field(default_factory=StepTimes)
    exception: str = ""  # "ValueError: ..." where one is recorded
    process_state: str = ""  # the letter of /proc/PID/stat where known, "X" for gone
    blocked: bool = False  # the board alone says that the rank may be waiting for others
    detached: bool = False


@dataclass(frozen=True)
class RankPlan:
    """What a rank is going to do, as its node knows it: changes by the epoch. Ranks of all nodes are compared by it.

    `loaders` are the training ones, without what moves by the second. `waits`: each recent step, or where there is none
    yet each step as model and source say, waits for other ranks.
    """

    rank: int
    loaders: tuple[LoaderFacts, ...] = ()
    groups_made: tuple[GroupMade, ...] = ()
    waits: bool = False


@dataclass(frozen=True)
class NodeHello:
    """What of a node does not change by the second: sent first, after a change, and when the dashboard asks."""

    job: Job
    host: str
    started_at: float  # the watchdog's
    ranks: tuple[Identity, ...] = ()
    groups: tuple[GroupMembers, ...] = ()
    hangwatch_version: str = ""
    plans: tuple[RankPlan, ...] = ()


@dataclass(frozen=True)
class NodeBatch:
    """All ranks of a node at one moment; one a second. `boot` names the watchdog's run.

    `sequence` counts within the boot from 0.
    """

    job: str  # Job.id
    node: str
    boot: str
    sequence: int
    taken_at: float
    ranks: tuple[RankBeat, ...] = ()
    hello: NodeHello | None = None
    facts: NodeFacts | None = None  # now and then
    warnings: tuple[HealthWarning, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    dropped: int = 0  # batches that the spool had to give up since the boot
    closing: bool = False  # the watchdog goes: the node's part of the job is over
    exit_code: int | None = None  # of the watched command, with `closing`


@dataclass(frozen=True)
class NodeCommand:
    """What the dashboard wants of a node: "capture" (answer with `request`), "hello" (in the next batch)."""

    kind: str
    request: str = ""
    reason: str = ""


@dataclass(frozen=True)
class NodeReply:
    """The dashboard's answer to a batch. `server_time` lets a node see how its clock differs."""

    accepted: int
    server_time: float
    commands: tuple[NodeCommand, ...] = ()


@dataclass(frozen=True)
class NodeCapture:
    """A node's part of a capture. `request` is empty where the node captured without being asked.

    Long lists of members stand once in `groups`; see `hangwatch.wire.compact`.
    """

    job: str
    node: str
    boot: str
    snapshot: Snapshot
    request: str = ""
    groups: tuple[GroupMembers, ...] = ()


@dataclass(frozen=True)
class NodeIncident:
    """An incident that a node's watchdog has judged by itself."""

    job: str
    node: str
    boot: str
    incident: Incident
