"""What the store takes and gives: one frozen dataclass a table row, documents already compressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class RunRow:
    """One run of a job. `summary` is the JobSummary of its last moment."""

    key: str
    id: str
    name: str
    started_at: float
    last_seen_at: float
    state: str
    closed_at: float | None = None
    summary: bytes | None = None
    changed_at: float = 0.0
    judgement: bytes | None = None
    judged_at: float | None = None
    open_incident: str | None = None
    command: str = ""


@dataclass(frozen=True)
class NodeRow:
    """The last batch of a node, as it came; `hello` and `facts` are the last batches that had such a part."""

    run: str
    node: str
    boot: str
    sequence: int
    process: str
    received_at: float
    clock_offset: float
    batch: bytes
    hello: bytes | None = None
    facts: bytes | None = None
    closed: int = 0


@dataclass(frozen=True)
class LastRun:
    """The last run of a job, as a node that comes finds it: its own row there, how many nodes were and still are."""

    row: RunRow
    node: NodeRow | None
    nodes: int
    alive: int


@dataclass(frozen=True)
class CaptureRow:
    """A capture of all nodes of a run: asked, done or failed."""

    id: str
    run: str
    reason: str
    asked_at: float
    changed_at: float
    state: str
    nodes_asked: tuple[str, ...]
    done_at: float | None = None
    document: bytes | None = None
    nodes_answered: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartRow:
    """One node's part of a capture: the NodeCapture, compressed."""

    capture: str
    node: str
    received_at: float
    clock_offset: float
    body: bytes


@dataclass(frozen=True)
class IncidentRow:
    """An incident: its summary for lists, and the whole document."""

    id: str
    run: str
    job_name: str
    opened_at: float
    changed_at: float
    status: str
    summary: bytes
    document: bytes
    closed_at: float | None = None


@dataclass(frozen=True)
class MessageRow:
    """A message to people that is due: "opened" or "recovered" of an incident."""

    incident: str
    kind: str
    attempts: int


@dataclass(frozen=True)
class Page:
    """A piece of a longer list, and how long the list is."""

    rows: list[Any]
    total: int


@dataclass(frozen=True)
class Wanted:
    """Which of the stored runs or incidents a list shows. Times are seconds since 1970; empty fields do not filter."""

    run: str = ""
    state: str = ""  # of a run, or the status of an incident
    cause: str = ""
    group: str = ""
    text: str = ""
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True)
class ListedIncident:
    """A line of a list of incidents: its summary, packed, with what the list knows beside it."""

    id: str
    opened_at: float
    summary: bytes
    cause: str
    place: str
    group: str
    review: Review


@dataclass(frozen=True)
class ListedGroup:
    """Incidents of one cause and line, as one line of a list."""

    group: str
    count: int
    jobs: int
    first_at: float
    last_at: float
    last: ListedIncident
    review: Review


@dataclass(frozen=True)
class Review:
    """What a person noted of a group of incidents. A group that is seen again after it was resolved is open again."""

    state: str = "open"
    note: str = ""
    at: float | None = None


def with_parts(rows: Sequence[NodeRow]) -> list[NodeRow]:
    """The rows, each with the hello and facts of earlier rows of its node in the same group."""
    seen: dict[tuple[str, str], NodeRow] = {}
    result = []
    for row in rows:
        before = seen.get((row.run, row.node))
        if before is not None and before.boot == row.boot:
            row = NodeRow(**asdict(row) | {"hello": row.hello or before.hello, "facts": row.facts or before.facts})
        seen[row.run, row.node] = row
        result.append(row)
    return result
