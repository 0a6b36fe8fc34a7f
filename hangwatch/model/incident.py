"""An incident as it stands in a report."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.model.board import ExceptionFacts, LoaderFacts, PhaseSpan, Progress, Reading
from hangwatch.model.collective import Collectives, Divergence
from hangwatch.model.evidence import CallSite, CaptureNote, Excerpt, Job, Launched, NodeFacts, StoreKey, Switch
from hangwatch.model.health import HealthWarning, JobHealth
from hangwatch.model.process import LockFile, PolledFile, ProcessEvidence, ProcessFacts
from hangwatch.model.stack import StackNode, ThreadStack
from hangwatch.model.terms import SCHEMA, Stage, Status
from hangwatch.model.verdict import Verdict


@dataclass(frozen=True)
class RankReport:
    """One rank as the report shows it, with nothing of its evidence lost.

    `reading` is the rank's board without the parts that stand beside it (progress, loaders, exception), so that
    `hangwatch.report.evidence_of` can give the `RankEvidence` back, for judging merged reports again.
    """

    rank: int
    host: str
    pid: int | None
    phase: str
    progress: Progress | None
    waiting_for: str
    collectives: Collectives
    loader: tuple[LoaderFacts, ...] = ()
    exception: ExceptionFacts | None = None
    process: ProcessFacts | None = None
    stacks: tuple[ThreadStack, ...] = ()
    earlier_stacks: tuple[ThreadStack, ...] = ()
    workers: tuple[ProcessEvidence, ...] = ()
    children: tuple[ProcessEvidence, ...] = ()
    gpu: int | None = None
    reading: Reading | None = None
    still_s: float = 0.0
    patience_s: float = 0.0
    moved: bool = False
    last_output: str = ""
    crash_trace: str = ""
    lock_files: tuple[LockFile, ...] = ()
    polled: PolledFile | None = None
    ended_at: float | None = None
    phases: tuple[PhaseSpan, ...] = ()
    held: str = ""
    variables: dict[str, str] | None = None


@dataclass(frozen=True)
class NextCheck:
    """What to check first next time: a command or a setting, and why it fits what happened.

    `check` is the name of what it leads to: a family of `hangwatch doctor` ("links"), one of `hangwatch doctor loader`
    ("loader lengths"), a forecast ("uneven-forecast"), a setting of hangwatch ("report-dir") or of Python
    ("PYTHONWARNINGS").
    """

    command: str
    check: str
    why: str


@dataclass(frozen=True)
class Incident:
    """A hang, kept: what `incident-*.json` holds."""

    id: str
    opened_at: float
    detected_after_s: float  # since the last progress of the job
    status: Status
    stage: Stage
    job: Job
    verdict: Verdict
    ranks: tuple[RankReport, ...] = ()
    stack_tree: tuple[StackNode, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    launchers: tuple[ProcessEvidence, ...] = ()
    others: tuple[ProcessEvidence, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    warnings: tuple[HealthWarning, ...] = ()
    capture: tuple[CaptureNote, ...] = ()
    closed_at: float | None = None
    updated_at: float = 0.0
    schema: str = SCHEMA
    hangwatch_version: str = ""
    taken_at: float = 0.0  # when the evidence was taken
    last_progress_at: float = 0.0
    sampled_twice: bool = True
    launched: tuple[Launched, ...] = ()
    start_patience_s: float = 30.0
    excerpts: tuple[Excerpt, ...] = ()
    call_sites: tuple[CallSite, ...] = ()
    switches: tuple[Switch, ...] = ()
    check_next: tuple[NextCheck, ...] = ()  # from `hangwatch analyze`
    health: JobHealth | None = None  # how fast the ranks were before it; None where it was not measured
    store_keys: tuple[StoreKey, ...] = ()
