"""The state of a simulated rank: its queues of calls, and what its board has recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.model import ExceptionFacts, Phase, StepEntry

from .acts import Act, Draw
from .calls import Issued, Thread

Stream = tuple[object, ...]
BEGAN = 1_700_000_000.0


@dataclass(slots=True)
class LoaderState:
    """One DataLoader of one rank."""

    length: int | None = None
    epoch: int = -1
    drawn: int = 0
    exhausted: bool = False
    left: bool = False
    training: bool = True
    workers: int = 0
    where: Draw | None = None
    counts: list[int] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)
    lengths: list[int | None] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Rank:
    """One rank of the job: what is true of it, and what its board has recorded."""

    number: int
    host: int
    threads: list[Thread] = field(default_factory=list)
    issued: dict[str, int] = field(default_factory=dict)
    calls: list[Issued] = field(default_factory=list)  # collectives and point-to-point calls, oldest first
    handles: dict[str, list[Issued]] = field(default_factory=dict)
    frontier: dict[Stream, Issued] = field(default_factory=dict)  # what the compute stream waits for, of each stream
    queue: dict[Stream, Issued] = field(default_factory=dict)  # the last call of each stream
    beside: dict[str, int] = field(default_factory=dict)  # calls through a group's second backend
    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    steps: list[StepEntry] = field(default_factory=list)
    loaders: dict[int, LoaderState] = field(default_factory=dict)
    phase: Phase = Phase.READY
    epoch: int | None = None
    batch: int | None = None
    optimizer_steps: int = 0
    forwards: int = 0
    draws: int = 0
    state: str = "S"
    code: int | None = None
    exception: ExceptionFacts | None = None
    failed_in: Act | None = None  # the call in which that came up
    output: str = ""
    ended_at: float | None = None
    stood: tuple[Thread, ...] = ()  # the threads that were running when it ended
    destroyed: bool = False
    moved_at: float = BEGAN
    moves: int = 0  # acts of its main thread, completed calls, its end: what counts as the job's progress

    @property
    def step(self) -> int:
        return self.steps[-1].step if self.steps else -1

    @property
    def living(self) -> bool:
        return self.state not in ("X", "Z")

    @property
    def closed(self) -> bool:
        """Its connections are closed."""
        return self.destroyed or not self.living
