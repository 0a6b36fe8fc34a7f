"""What a rank writes on its board, as the watchdog reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.model.collective import Collective, GroupHead
from hangwatch.model.stack import Frame
from hangwatch.model.step import StepName
from hangwatch.model.terms import Phase


@dataclass(frozen=True)
class Identity:
    """Identifies a rank. `started_at` is the process's start, so that a reused pid is not taken for it."""

    rank: int | None
    world_size: int | None
    local_rank: int | None
    host: str
    pid: int
    started_at: float
    job: str
    command: str = ""
    launcher: str = ""  # "torchrun", "spawn", "plain", "slurm", "mpi", ...
    torch_version: str = ""
    python_version: str = ""
    environment: dict[str, str] = field(default_factory=dict)  # the distributed settings only; redacted
    attached_by: str = "run"  # "run" or "attach"
    plan: dict[str, str] = field(default_factory=dict)  # what its model will make of each step; ranks compare it


@dataclass(frozen=True)
class Progress:
    """Counters that only grow. A rank moves where any of them differs between two readings.

    `epoch` and `batch` are the training loader's: `batch` is the index of the last batch drawn, in this `epoch`.
    `step` is the index of the step in progress, counted from 0 at the start; -1 before the first. A batch drawn by the
    training loader begins one; where there is no loader, a training forward or tick(). Where there is none of these,
    an optimizer step ends one and begins the next: then -1 up to the end of step 0. `backward_step` is that in which
    the newest gradients began to be computed, `accumulated_step` that of the newest training forward that DDP was told
    not to synchronise (`no_sync`); None where there were none, or the record does not say.
    """

    epoch: int | None = None
    batch: int | None = None
    step: int = -1
    optimizer_steps: int = 0
    forwards: int = 0
    ticks: int = 0
    draws: int = 0  # batches drawn from all loaders
    calls: int = 0  # collectives and point-to-point calls issued, all groups
    completed: int = 0  # collectives completed, all groups
    at: float = 0.0  # when one of these last changed
    backward_step: int | None = None
    accumulated_step: int | None = None


@dataclass(frozen=True, slots=True)
class StepEntry:
    """One line of the step ledger: what a rank had issued when a step began.

    `issued` maps group name to the collectives issued in that group *before* this step; the collectives of step k are
    the difference between the entries k and k + 1 (or the head, for the last one). `optimizer_steps` are those made
    before this step, and `backward_step` and `accumulated_step` are as in `Progress`, before this step as well. None
    where there were none, or the record does not say.
    """

    step: int
    epoch: int | None
    batch: int | None
    loader: int | None
    at: float
    issued: dict[str, int] = field(default_factory=dict)
    optimizer_steps: int | None = None
    backward_step: int | None = None
    accumulated_step: int | None = None

    @property
    def name(self) -> StepName:
        return StepName(self.epoch, self.batch, self.step)


EPOCHS_KEPT = 64  # of a loader, of which a board says what they gave


@dataclass(frozen=True)
class LoaderFacts:
    """One DataLoader as its iterators have been used. `epoch` counts the iterators made, from 0; -1 before the first.

    `length` is len(loader) where it has one. `drawn` counts the batches of this epoch. `exhausted` means that
    StopIteration was raised; `left` that the loop has left the iterator before. `sampler_indices_hash` is a digest of
    the index order of the last whole epoch, `previous_indices_hash` of the one before.
    """

    index: int
    length: int | None
    epoch: int = -1
    drawn: int = 0
    resumed_at: int = 0  # batches of this epoch that its iterator passed over, in a training that was resumed
    exhausted: bool = False
    left: bool = False
    inside_next: bool = False
    num_workers: int = 0
    worker_pids: tuple[int, ...] = ()
    training: bool = True  # the loader whose draws count as steps
    where: Frame | None = None  # the user's line that iterates it
    dataset: str = ""  # type name
    dataset_length: int | None = None
    batch_size: int | None = None
    sampler: str = ""
    sampler_replicas: int | None = None
    sampler_rank: int | None = None
    sampler_length: int | None = None
    shuffle: bool | None = None
    drop_last: bool | None = None
    sampler_seed: int | None = None
    start_method: str = ""
    timeout_s: float = 0.0
    sampler_indices_hash: str = ""
    previous_indices_hash: str = ""
    first_epoch: int | None = None  # of its sampler when it was first iterated: a resumed training's is not 0
    looked: Frame | None = None  # the line that drew one batch of it before the training, and no more
    drawn_per_epoch: tuple[int, ...] = ()  # batches of the finished epochs, oldest first (the last 64)
    exhausted_per_epoch: tuple[bool, ...] = ()

    @property
    def gives_nothing(self) -> bool:
        """Its loop begins one epoch after another, and none has a batch: with a full memory of them, it spins."""
        empty = self.drawn_per_epoch and not self.drawn and not any(self.drawn_per_epoch)
        return bool(empty) and len(self.drawn_per_epoch) == EPOCHS_KEPT


@dataclass(frozen=True)
class ExceptionFacts:
    """An exception that a rank has recorded in `step`: uncaught (`fatal`), or seen on its way."""

    type: str
    message: str
    frames: tuple[Frame, ...]
    thread: str = "MainThread"
    at: float = 0.0
    fatal: bool = True
    step: int | None = None


@dataclass(frozen=True)
class StepTimes:
    """Sums over the run and the extremes of the recent steps, in seconds. Source: the rank's hooks."""

    steps: int = 0
    data_s: float = 0.0  # inside loader next()
    before_sync_s: float = 0.0  # from the batch to the first backward end, where known
    total_s: float = 0.0
    last_s: float = 0.0
    slowest_recent_s: float = 0.0


@dataclass(frozen=True)
class GroupMade:
    """One call of new_group (or of init_process_group, name "0"): in order, with the list of ranks asked for."""

    index: int
    members: tuple[int, ...]
    name: str
    done: bool
    where: Frame | None = None


@dataclass(frozen=True)
class Reading:
    """A board, read once. `taken_at` is when; `ticker_at` is when the rank's own ticker thread last ran."""

    identity: Identity
    taken_at: float
    phase: Phase = Phase.START
    phase_at: float = 0.0
    progress: Progress = field(default_factory=Progress)
    ticker_at: float = 0.0
    heads: tuple[GroupHead, ...] = ()
    calls: tuple[Collective, ...] = ()  # ring of Python-issued calls, oldest first
    calls_dropped: int | None = None  # older ones that are not in `calls`; None: not known
    open_calls: tuple[Collective, ...] = ()
    steps: tuple[StepEntry, ...] = ()  # oldest first
    loaders: tuple[LoaderFacts, ...] = ()
    exception: ExceptionFacts | None = None
    caught: tuple[ExceptionFacts, ...] = ()  # that left a forward or a loader: the last few, oldest first
    times: StepTimes = field(default_factory=StepTimes)
    groups_made: tuple[GroupMade, ...] = ()
    detached: bool = False
    problems: tuple[str, ...] = ()  # what the probe could not do, in words
    lasting_threads: tuple[int, ...] | None = None  # system ids of threads that are no daemons, at the last look
    backward: tuple[Frame, ...] = ()  # the path by which its backwards come, where that is one; innermost frame first


@dataclass(frozen=True)
class PhaseSpan:
    """A phase in which a rank was seen: from `at` to the next span's, or until the evidence was taken.

    The watchdog looks about once a second, so phases between two looks are missing. `step` is the last one seen in it.
    """

    at: float
    phase: Phase
    step: int
