"""What hangwatch knows and says, as frozen dataclasses: the wire format and the report format are these.

Reading order: a rank's **board** yields a `Reading` every second; when nothing moves, the captures turn it into
`RankEvidence`; the evidence of all ranks at one moment is a `Snapshot`; `diagnose(snapshot)` makes a `Judgement`;
an `Incident` keeps it all, and is what stands in `incident-*.json`.

Units: times are seconds; absolute times are seconds since 1970 in UTC; sizes are bytes unless a name says otherwise.
Epochs, batches and steps count from 0. `None` means "not known", never "zero". Sequences are tuples.
Frames and stacks are innermost first: `frames[0]` is where the thread is.
"""

from __future__ import annotations

from hangwatch.model.board import (
    EPOCHS_KEPT,
    ExceptionFacts,
    GroupMade,
    Identity,
    LoaderFacts,
    PhaseSpan,
    Progress,
    Reading,
    StepEntry,
    StepTimes,
)
from hangwatch.model.collective import Collective, Collectives, Divergence, GroupHead, PeerCount, WaitingTask
from hangwatch.model.diff import DiffCall, DiffIteration, DiffRow, RanksDiff
from hangwatch.model.evidence import (
    Bypass,
    CallSite,
    CaptureNote,
    Excerpt,
    Hashed,
    Job,
    KeySetter,
    Launched,
    Link,
    NodeFacts,
    RankEvidence,
    Snapshot,
    StoreKey,
    Switch,
    every_rank,
)
from hangwatch.model.health import ForeignMemory, HealthWarning, JobHealth, Pace, Spread, Straggler, Trend
from hangwatch.model.incident import Incident, NextCheck, RankReport
from hangwatch.model.messages import (
    GroupBeat,
    GroupMembers,
    LoaderBeat,
    NodeBatch,
    NodeCapture,
    NodeCommand,
    NodeHello,
    NodeIncident,
    NodeReply,
    RankBeat,
    RankPlan,
)
from hangwatch.model.nccl import NcclCommunicator, NcclLaunched, NcclView
from hangwatch.model.process import (
    GpuFacts,
    LockFile,
    LockOwner,
    OpenFile,
    Pipe,
    PolledFile,
    ProcessEvidence,
    ProcessFacts,
    Socket,
    ThreadFacts,
)
from hangwatch.model.stack import Condition, Frame, LoopFacts, StackNode, ThreadStack, WayOut
from hangwatch.model.step import StepName
from hangwatch.model.terms import SCHEMA, Certainty, Phase, Stage, Status
from hangwatch.model.verdict import Alternative, ChainEnd, Culprit, Judgement, Verdict, Wait, ranks_of

__all__ = [
    "EPOCHS_KEPT",
    "SCHEMA",
    "Alternative",
    "Bypass",
    "CallSite",
    "CaptureNote",
    "Certainty",
    "ChainEnd",
    "Collective",
    "Collectives",
    "Condition",
    "Culprit",
    "DiffCall",
    "DiffIteration",
    "DiffRow",
    "Divergence",
    "ExceptionFacts",
    "Excerpt",
    "ForeignMemory",
    "Frame",
    "GpuFacts",
    "GroupBeat",
    "GroupHead",
    "GroupMade",
    "GroupMembers",
    "Hashed",
    "HealthWarning",
    "Identity",
    "Incident",
    "Job",
    "JobHealth",
    "Judgement",
    "KeySetter",
    "Launched",
    "Link",
    "LoaderBeat",
    "LoaderFacts",
    "LockFile",
    "LockOwner",
    "LoopFacts",
    "NcclCommunicator",
    "NcclLaunched",
    "NcclView",
    "NextCheck",
    "NodeBatch",
    "NodeCapture",
    "NodeCommand",
    "NodeFacts",
    "NodeHello",
    "NodeIncident",
    "NodeReply",
    "OpenFile",
    "Pace",
    "PeerCount",
    "Phase",
    "PhaseSpan",
    "Pipe",
    "PolledFile",
    "ProcessEvidence",
    "ProcessFacts",
    "Progress",
    "RankBeat",
    "RankEvidence",
    "RankPlan",
    "RankReport",
    "RanksDiff",
    "Reading",
    "Snapshot",
    "Socket",
    "Spread",
    "StackNode",
    "Stage",
    "Status",
    "StepEntry",
    "StepName",
    "StepTimes",
    "StoreKey",
    "Straggler",
    "Switch",
    "ThreadFacts",
    "ThreadStack",
    "Trend",
    "Verdict",
    "Wait",
    "WaitingTask",
    "WayOut",
    "every_rank",
    "ranks_of",
]
