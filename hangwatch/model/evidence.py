"""What was captured at one moment: of a rank, of a node, of a whole job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hangwatch.model.board import PhaseSpan, Reading, StepEntry
from hangwatch.model.collective import Collective, Collectives, Divergence, GroupHead
from hangwatch.model.health import HealthWarning, JobHealth
from hangwatch.model.nccl import NcclView
from hangwatch.model.process import GpuFacts, LockFile, Pipe, PolledFile, ProcessEvidence, ProcessFacts
from hangwatch.model.stack import Condition, Frame, LoopFacts, ThreadStack

MOST_RANKS = 1 << 17  # of a job: no job has more


@dataclass(frozen=True)
class RankEvidence:
    """All that is known of one rank at one moment. Every part but `rank` may be missing."""

    rank: int
    host: str = ""
    pid: int | None = None
    reading: Reading | None = None
    process: ProcessFacts | None = None
    stacks: tuple[ThreadStack, ...] = ()
    earlier_stacks: tuple[ThreadStack, ...] = ()
    collectives: Collectives = field(default_factory=Collectives)
    workers: tuple[ProcessEvidence, ...] = ()
    children: tuple[ProcessEvidence, ...] = ()
    gpu: int | None = None  # index of the GPU that it is bound to
    still_s: float = 0.0  # for how long no counter has moved
    patience_s: float = 0.0  # after how much stillness it counts as stalled without proof
    moved: bool = False  # a counter moved between the two samples of this capture
    last_output: str = ""  # last lines of its log, where a log file exists
    crash_trace: str = ""  # faulthandler's output, where there is one
    lock_files: tuple[LockFile, ...] = ()
    polled: PolledFile | None = None  # what a loop of its looks for
    ended_at: float | None = None  # when its process ended, where the watchdog saw it; tells which process died first
    phases: tuple[PhaseSpan, ...] = ()  # its last minutes, oldest first
    held: str = ""  # the fact that keeps it from going on by itself: "waits in read on pipe:[7]"; shortens patience
    variables: dict[str, str] | None = None  # digests of what its program asks the environment for, where known

    @property
    def stalled(self) -> bool:
        return self.still_s > self.patience_s

    @property
    def board_settings(self) -> Mapping[str, str]:
        """The distributed settings on its board; empty without a board."""
        return self.reading.identity.environment if self.reading is not None else {}

    @property
    def board_steps(self) -> tuple[StepEntry, ...]:
        """The steps on its board, oldest first; empty without a board."""
        return self.reading.steps if self.reading is not None else ()

    @property
    def board_calls(self) -> tuple[Collective, ...]:
        """The calls on its board, oldest first; empty without a board."""
        return self.reading.calls if self.reading is not None else ()

    @property
    def boards_all_calls(self) -> bool:
        """Its board holds every call that its Python code has made."""
        return self.reading is not None and self.reading.calls_dropped == 0

    @property
    def board_heads(self) -> tuple[GroupHead, ...]:
        """How far its board says that it is in each group; empty without a board."""
        return self.reading.heads if self.reading is not None else ()

    @property
    def main_stack(self) -> tuple[Frame, ...]:
        return next((stack.frames for stack in self.stacks if stack.main), ())


@dataclass(frozen=True)
class Launched:
    """A process that its environment calls a rank, whether it ever became one or not.

    `ended_at` is None while it lives; `exit_code` is negative for a signal, None where it is not known. `board` says
    that a board of it was seen.
    """

    rank: int
    pid: int
    started_at: float
    world_size: int | None = None
    command: str = ""  # redacted
    environment: dict[str, str] = field(default_factory=dict)  # the distributed settings only; redacted
    ended_at: float | None = None
    exit_code: int | None = None
    board: bool = False


@dataclass(frozen=True)
class Link:
    """What a node's ranks have sent to one address in some time, by the kernel's counters of their TCP connections.

    `busy_s` is the time with data on their way that the receiver had room for, summed over the connections.
    """

    local: str
    remote: str
    connections: int
    sent: int  # bytes that have arrived
    busy_s: float
    segments: int
    sent_again: int = 0


@dataclass(frozen=True)
class NodeFacts:
    """One machine of the job. `clock_offset_s` is its clock minus the judge's, where several nodes are judged."""

    host: str
    ranks: tuple[int, ...] = ()
    silent_s: float = 0.0  # since its watchdog was last heard of
    clock_offset_s: float = 0.0
    gpus: tuple[GpuFacts, ...] = ()
    driver: str = ""  # version of the NVIDIA driver, where there is one
    shm_total: int | None = None
    shm_free: int | None = None
    memory_limit: int | None = None
    memory_used: int | None = None
    oom_kills: int | None = None  # in the job's cgroup, since the watchdog started
    master_listener: ProcessFacts | None = None  # the process that listens on MASTER_PORT, on the master's node
    master_resolves: bool | None = None
    addresses: tuple[str, ...] = ()
    pipes: tuple[Pipe, ...] = ()  # those that a process is blocked on, or that an orphan holds open
    nccl: NcclView | None = None  # the answer of NCCL's RAS service on this machine
    links: tuple[Link, ...] = ()  # to other machines, since the look before


@dataclass(frozen=True)
class Job:
    """A job as the watchdog knows it."""

    id: str
    name: str
    world_size: int | None
    launcher: str = ""
    command: str = ""
    started_at: float = 0.0
    nodes_expected: int | None = None


def every_rank(world_size: int | None) -> range:
    """The ranks of a job of that size; a size that no job has is taken for a typing error, and cut."""
    return range(min(world_size or 0, MOST_RANKS))


@dataclass(frozen=True)
class CaptureNote:
    """One source of evidence: whether it could be had, and why not."""

    source: str  # "stacks", "native stacks", "collectives", "process", "sockets", "gpu", ...
    ok: bool
    detail: str = ""
    took_s: float = 0.0
    rank: int | None = None


@dataclass(frozen=True)
class Excerpt:
    """Some lines of a user's source file around `line`, where a rank stands; `first` is the number of the first one.

    Lines are as the file had them when the evidence was taken, secrets redacted, long lines cut.
    """

    file: str
    line: int
    first: int
    lines: tuple[str, ...]
    changed: bool = False  # the file was written after the rank had started: other lines may be running


@dataclass(frozen=True)
class Bypass:
    """One way past a call of the user's in a turn of the loop, as the source shows it: a hint, and never proof.

    `text` is e.g. "if not torch.isfinite(loss): continue" or "except RuntimeError". `inner` is false for a way past the
    whole loop or hook in which the call stands. `asks` is what its condition asks for, "" where it is none; `of_turn`
    says that it ends the whole turn of the loop, and not the call alone. Where the condition is no more than a name,
    `given` is the line that gave that its value, and `given_text` what stands there; of a decorator ("@main_only") they
    are the condition of its wrapper.
    """

    where: Frame
    text: str
    inner: bool = True
    # "rank", "value" (of its own), "check" (whether data is there and fit), "alike" (on all ranks), "package" (for the
    # rank, in a framework's code)
    asks: str = ""
    of_turn: bool = False
    counts: bool = False  # it asks for a counter modulo a number: it comes every so many turns
    given: Frame | None = None
    given_text: str = ""


@dataclass(frozen=True)
class Hashed:
    """A line whose result follows from the hash of a value, as `for name in self.dirty` does where that is a set."""

    where: Frame
    text: str


@dataclass(frozen=True)
class CallSite:
    """The user's own frames that lead to a call, innermost first, the ways past it, and the innermost loop around it.

    `loop` is None where that one is the outermost: then it is the training loop, or none. `hashed` is what decides on
    the way to it by a hash, which each process may compute otherwise.
    """

    frames: tuple[Frame, ...]
    bypasses: tuple[Bypass, ...]
    loop: LoopFacts | None = None
    hashed: Hashed | None = None

    @property
    def lines(self) -> tuple[tuple[str, int], ...]:
        return tuple(frame.source_line for frame in self.frames)


@dataclass(frozen=True)
class Switch:
    """A line of the user's that sets what a package's code decides by, such as `trainer.should_stop = True`.

    One with the name "log" logs a value, which a package's code reduces later: `asked` is then where that is defined.
    As the source shows it: a hint, and never proof. `name` is the attribute, `where` the line that sets it, `condition`
    that under which it does so ("" for none), and `asks` what that asks for (see `Bypass`). `asked` is the package's
    line that asks for it, `last` the last line of what it guards; `leaves` says that it ends a loop or a function.
    """

    name: str
    where: Frame
    condition: str
    asks: str
    asked: Frame
    last: int
    leaves: bool = False


@dataclass(frozen=True)
class KeySetter:
    """A line of the user's that sets a key of a store, as the source shows it: a hint, and never proof.

    `frames` are that line and the only calls that lead to it, innermost first; `conditions` those on the way, the outer
    ones first. `rank` is the only rank that comes there by them, None where that is not known. `swallows` is an except
    clause on the way that lets an error go no further, and `tries` the first line of what it is for.
    """

    frames: tuple[Frame, ...]
    conditions: tuple[Condition, ...] = ()
    rank: int | None = None
    tries: Frame | None = None
    swallows: Frame | None = None

    @property
    def where(self) -> Frame:
        return self.frames[0]


@dataclass(frozen=True)
class StoreKey:
    """The key for which a rank with these own frames (innermost first) asks a store, and the lines that set it.

    What varies in an f-string is `{}` in its text.
    """

    frames: tuple[Frame, ...]
    key: str
    setters: tuple[KeySetter, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The evidence of all ranks at one moment: the one argument of `diagnose`.

    `ranks` are those known by a board or a process; ranks of `job.world_size` that are not in it never came.
    `divergences` are remembered from the running job. `sampled_twice` is false where only one sample could be taken.
    `launched` are the processes that were started as ranks; `start_patience_s` is how long ranks may take to come.
    """

    job: Job
    taken_at: float
    ranks: tuple[RankEvidence, ...]
    launchers: tuple[ProcessEvidence, ...] = ()
    others: tuple[ProcessEvidence, ...] = ()  # job processes that are no rank, worker or launcher; orphans
    nodes: tuple[NodeFacts, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    warnings: tuple[HealthWarning, ...] = ()
    notes: tuple[CaptureNote, ...] = ()
    last_progress_at: float = 0.0
    sampled_twice: bool = True
    launched: tuple[Launched, ...] = ()
    start_patience_s: float = 30.0
    excerpts: tuple[Excerpt, ...] = ()  # around the lines where ranks stand; ranks that stand alike share one
    # Of recorded calls, those that a turn of the loop can pass by, or that an inner loop holds.
    call_sites: tuple[CallSite, ...] = ()
    switches: tuple[Switch, ...] = ()  # that the user's code sets, and packages on the stacks of ranks ask for
    health: JobHealth | None = None  # how fast the ranks were before it; None where it was not measured
    store_keys: tuple[StoreKey, ...] = ()  # for which ranks may wait, where the user's source shows them
