"""Collectives, the process groups that they were issued in, and where ranks differ."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.model.stack import Frame
from hangwatch.model.step import StepName


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective or point-to-point call that a rank issued. `seq` counts per group from 1, as torch does.

    `op` is torch's name without the backend ("all_reduce", "broadcast", "send", ...). `sizes` are element counts per
    input tensor's dimensions, e.g. ((1000, 10),). Source: torch's flight recorder, or the board's ring of calls.
    `frames` of the ring are the few that tell most; `via` stands for the packages' lines among all of them.
    """

    group: str
    seq: int
    op: str
    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    retired: bool | None = None  # completed, where known
    peer: int | None = None  # global rank at the other end (point-to-point); root of a rooted collective
    tag: int | None = None
    thread_id: int | None = None
    thread_name: str = ""
    frames: tuple[Frame, ...] = ()
    at: float | None = None
    step: int | None = None  # step counter of the rank at the time, where known
    output_sizes: tuple[tuple[int, ...], ...] = ()
    started: bool | None = None  # whether the device has begun it; None where no start events are recorded
    via: int = 0  # a checksum (`stacks.frames.via`) of the whole path; 0 where `frames` are that, or it goes by none


@dataclass(frozen=True, slots=True)
class PeerCount:
    """How many messages a rank has sent to global rank `peer` in one group and received from it, queued ones too."""

    peer: int
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class GroupHead:
    """How far a rank is in one process group. Counts are of collectives; -1 for "never".

    `members` are global ranks in group order. Two ranks mean the same group where name and members agree.
    `sent` and `received` count point-to-point calls. `timeout_s` is how long a call of this group may take before the
    backend ends it; None where it is not known. `peers` splits both counts by peer; messages from any rank, and those
    of peers beyond what a board holds, are in the counts only.
    """

    name: str
    members: tuple[int, ...]
    description: str = ""
    backend: str = ""
    issued: int = -1
    completed: int = -1
    sent: int = 0
    received: int = 0
    timeout_s: float | None = None
    peers: tuple[PeerCount, ...] = ()

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        return (self.name, self.members)

    @property
    def uses_nccl(self) -> bool:
        """Its collectives, or those of one of its two backends, are queued on a device."""
        return "nccl" in self.backend


@dataclass(frozen=True)
class WaitingTask:
    """`count` tasks of asyncio that wait at one place; `frames` are those of their coroutines, innermost first."""

    frames: tuple[Frame, ...]
    count: int = 1


@dataclass(frozen=True)
class Collectives:
    """A rank's side of every process group: heads, and the last calls of each (oldest first).

    `source` is "flight-recorder" (complete, with frames) or "board" (Python-issued calls only; DDP's own are counted
    in `issued` but not listed). `open_calls` are calls that a thread is inside right now, from the board: a thread that
    entered and has not returned from the Python call (asynchronous calls return at once and are not open).
    """

    heads: tuple[GroupHead, ...] = ()
    recent: tuple[Collective, ...] = ()
    open_calls: tuple[Collective, ...] = ()
    source: str = "board"
    answer_cpu_s: float = 0.0  # CPU time that the rank spent on telling us
    without_gradients: tuple[str, ...] = ()  # parameters of its DDP model that have none, where others have one
    tasks: tuple[WaitingTask, ...] = ()  # of asyncio, where a thread of the rank sleeps in an event loop

    @property
    def complete(self) -> bool:
        """Torch's own record: it lacks no calls but the oldest."""
        return self.source == "flight-recorder"


@dataclass(frozen=True)
class Divergence:
    """The first step in which ranks issued different numbers of collectives in one group.

    `counts` maps rank to the number issued in that step. `short` are the ranks that issued fewer than the majority
    (or more, where `more` is set).
    """

    group: str
    members: tuple[int, ...]
    step: int
    epoch: int | None
    batch: int | None
    counts: dict[int, int]
    short: tuple[int, ...]
    more: tuple[int, ...] = ()
    seen_at: float = 0.0
    exact: bool = True  # false: it happened in `step` or before, between two looks; `counts` are of all those steps
    doubtful: bool = False  # perhaps only the counts of steps differ: all made whole turns of the loop, or whole rounds

    @property
    def name(self) -> StepName:
        return StepName(self.epoch, self.batch, self.step)
