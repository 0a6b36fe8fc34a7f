"""What hangwatch knows and says, as frozen dataclasses: the wire format and the report format are these.

Reading order: a rank's **board** yields a `Reading` every second; when nothing moves, the captures turn it into
`RankEvidence`; the evidence of all ranks at one moment is a `Snapshot`; `diagnose(snapshot)` makes a `Judgement`;
an `Incident` keeps it all, and is what stands in `incident-*.json`.

Units: times are seconds; absolute times are seconds since 1970 in UTC; sizes are bytes unless a name says otherwise.
Epochs, batches and steps count from 0. `None` means "not known", never "zero". Sequences are tuples.
Frames and stacks are innermost first: `frames[0]` is where the thread is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

SCHEMA = "hangwatch.incident/2"


class Certainty(StrEnum):
    """How sure a verdict is."""

    PROVEN = "proven"
    LIKELY = "likely"
    UNDETERMINED = "undetermined"


class Status(StrEnum):
    """What became of the job."""

    HUNG = "hung"
    WAITING = "waiting"
    LINGERING = "lingering"
    FAILED = "failed"
    RECOVERED = "recovered"


class Stage(StrEnum):
    """The stage of a job's life in which it stopped."""

    START = "start"
    STEP = "step"
    DATA = "data"
    DEVICE = "device"
    EXIT = "exit"


class Phase(StrEnum):
    """What a rank was doing when a hook last heard of it."""

    START = "start"  # the probe is there; no process group yet
    INIT = "init"  # inside init_process_group
    GROUP = "group"  # inside new_group
    READY = "ready"  # process group made; no step seen yet
    DATA = "data"  # inside a loader's next()
    STEP = "step"  # between a batch and the next one, nothing finer known
    FORWARD = "forward"  # inside a wrapped model's forward
    BACKWARD = "backward"  # after a forward with gradients, before the optimizer
    OPTIMIZER = "optimizer"  # an optimizer step has been made
    EVAL = "eval"  # a forward without gradients
    BETWEEN = "between"  # a loader has ended or been left; no new batch yet
    DESTROYING = "destroying"  # inside destroy_process_group
    DESTROYED = "destroyed"  # destroy_process_group returned
    MAIN_DONE = "main-done"  # the main program has ended, threading._shutdown runs
    ATEXIT = "atexit"  # atexit callbacks run
    FINALIZING = "finalizing"  # the last atexit callback is over
    FAILED = "failed"  # an uncaught exception is on its way out


# ---------------------------------------------------------------- stacks and processes


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack; `line` is 0 where it is not known (native frames)."""

    file: str
    line: int
    function: str
    native: bool = False


@dataclass(frozen=True)
class LoopFacts:
    """A loop of the user's, as its source shows it: how one turn, or all of it, can end early. Frames are places.

    `counted` means that a number says how many turns it makes (range, while), rather than the data.
    """

    where: Frame
    counted: bool = False
    skips: tuple[Frame, ...] = ()  # `continue`, and except clauses after which the next turn follows
    leaves: tuple[Frame, ...] = ()  # `break` and `return`
    swallows: Frame | None = None  # the except clause around the loop that lets an error go no further
    outer: tuple[Frame, ...] = ()  # the loops around it, also those of callers, the innermost first


@dataclass(frozen=True)
class ThreadStack:
    """One thread of a process, innermost frame first. Source: py-spy, or faulthandler where `source` says so."""

    thread_id: int
    name: str
    frames: tuple[Frame, ...]
    owns_gil: bool | None = None
    active: bool | None = None
    main: bool = False
    source: str = "py-spy"
    block: str = ""  # "except" or "finally": the block around the user's innermost line, where its source could be read
    handler: str = ""  # function of a frame that the source registers as a signal handler
    in_loop: bool | None = None  # whether one of the user's lines stands in a loop, where the source could be read
    loop: LoopFacts | None = None  # the innermost of these loops
    guard: str = ""  # "rank": only some ranks come here; "other": some other condition; "none"; "" where not known


@dataclass(frozen=True)
class OpenFile:
    """A descriptor that matters: what a thread waits on, or standard output."""

    fd: int
    path: str  # a path, "pipe:[123]", "socket 10.0.0.1:4000 -> 10.0.0.2:29500"
    filesystem: str | None = None  # "nfs4", "ext4", ...; "fifo" for a named pipe, wherever its name is


@dataclass(frozen=True)
class Socket:
    """A TCP connection of a process, from /proc/PID/net/tcp{,6}. Addresses are "host:port"."""

    local: str
    remote: str
    state: str  # "established", "listen", ...
    unacknowledged: int = 0  # bytes queued and not acknowledged
    unread: int = 0
    retransmits: int = 0


@dataclass(frozen=True)
class ThreadFacts:
    """A thread as the system sees it; the main thread's id is the pid. Source: /proc/PID/task/TID."""

    thread_id: int
    name: str
    state: str
    wait_channel: str | None = None
    system_call: str | None = None


@dataclass(frozen=True)
class ProcessFacts:
    """What the system knows of a process. `state` is the letter of /proc/PID/stat, "X" for a process that is gone."""

    pid: int
    state: str
    parent: int | None = None
    started_at: float | None = None
    command: str = ""  # redacted
    cpu_s: float | None = None  # user + system time since its start
    cpu_delta_s: float | None = None  # CPU time spent between the two samples, of a rank without what it spent for us
    io_delta_bytes: int | None = None  # bytes read + written between the two samples
    threads: int | None = None
    resident_bytes: int | None = None
    wait_channel: str | None = None  # kernel function of the main thread, "" for none
    system_call: str | None = None  # name where known, of the main thread
    blocked_on: OpenFile | None = None  # descriptor of the call that blocks the main thread
    descriptors: int | None = None
    descriptor_limit: int | None = None
    children: tuple[int, ...] = ()
    exit_code: int | None = None  # where the parent told; negative is a signal
    sockets: tuple[Socket, ...] = ()
    standard_pipes: tuple[OpenFile, ...] = ()  # descriptors 1 and 2 where they are pipes
    environment: dict[str, str] = field(default_factory=dict)  # RANK, WORLD_SIZE, MASTER_*, ... only; redacted
    unreadable: tuple[str, ...] = ()  # facts that could not be had, each with its reason
    io_bytes: int | None = None  # bytes read + written by system calls since its start
    written_bytes: int | None = None  # of these, the bytes written
    written_delta_bytes: int | None = None  # written between the two samples, of a rank without what it wrote for us
    unusual_threads: tuple[ThreadFacts, ...] = ()  # threads that are neither sleeping nor running: D, T, t, Z
    waits_for: int | None = None  # the child that its main thread waits for (wait4, waitid); None for any or no child
    sleeps_s: float | None = None  # for how long its main thread will go on sleeping (nanosleep)
    private_wait: bool = False  # the main thread waits, without a timeout, for what only its own threads can give
    deadlocked: bool = False  # and so does every other thread of it: nobody is left to give it


@dataclass(frozen=True)
class ProcessEvidence:
    """A process that is no rank (loader worker, launcher, child, orphan): its facts and its stacks."""

    # "loader-worker", "launcher", "compile-worker", "helper" (resource tracker, fork server, torch_shm_manager),
    # "child" (of a rank), "orphan" (of a rank or launcher that is gone), "job" (of the job, part not known)
    role: str
    facts: ProcessFacts
    stacks: tuple[ThreadStack, ...] = ()
    earlier_stacks: tuple[ThreadStack, ...] = ()
    rank: int | None = None  # the rank that it belongs to
    worker: int | None = None  # index of a loader worker
    sample: str | None = None  # the sample index or batch of indices that a worker holds
    last_output: str = ""  # last lines of its log, where a log file exists


@dataclass(frozen=True)
class GpuFacts:
    """One GPU of a node, from NVML. `processes` maps pid to bytes of GPU memory."""

    index: int
    uuid: str
    name: str
    utilization_percent: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    temperature_c: int | None = None
    serial: str | None = None
    processes: dict[int, int] = field(default_factory=dict)
    errors: tuple[str, ...] = ()


# ---------------------------------------------------------------- collectives


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective or point-to-point call that a rank issued. `seq` counts per group from 1, as torch does.

    `op` is torch's name without the backend ("all_reduce", "broadcast", "send", ...). `sizes` are element counts per
    input tensor's dimensions, e.g. ((1000, 10),). Source: torch's flight recorder, or the board's ring of calls.
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


@dataclass(frozen=True, slots=True)
class GroupHead:
    """How far a rank is in one process group. Counts are of collectives; -1 for "never".

    `members` are global ranks in group order. Two ranks mean the same group where name and members agree.
    `sent` and `received` count point-to-point calls.
    """

    name: str
    members: tuple[int, ...]
    description: str = ""
    backend: str = ""
    issued: int = -1
    completed: int = -1
    sent: int = 0
    received: int = 0

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        return (self.name, self.members)


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


# ---------------------------------------------------------------- what a board says


@dataclass(frozen=True)
class Identity:
    """Who a rank is. `started_at` is the process's start, so that a reused pid is not taken for it."""

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


@dataclass(frozen=True)
class Progress:
    """Counters that only grow. A rank moves where any of them differs between two readings.

    `epoch` and `batch` are the training loader's: `batch` is the index of the last batch drawn, in this `epoch`.
    `step` is the index of the current step since the start (one per batch drawn by the training loader, or per
    training forward, optimizer step or tick() where there is no loader); -1 before the first.
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


@dataclass(frozen=True, slots=True)
class StepEntry:
    """One line of the step ledger: what a rank had issued when a step began.

    `issued` maps group name to the collectives issued in that group *before* this step; the collectives of step k are
    the difference between the entries k and k + 1 (or the head, for the last one).
    """

    step: int
    epoch: int | None
    batch: int | None
    loader: int | None
    at: float
    issued: dict[str, int] = field(default_factory=dict)


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
    start_method: str = ""
    timeout_s: float = 0.0
    sampler_indices_hash: str = ""
    previous_indices_hash: str = ""
    drawn_per_epoch: tuple[int, ...] = ()  # batches of the finished epochs, oldest first (the last 64)
    exhausted_per_epoch: tuple[bool, ...] = ()


@dataclass(frozen=True)
class ExceptionFacts:
    """An exception that a rank has recorded: uncaught (`fatal`), or seen on its way."""

    type: str
    message: str
    frames: tuple[Frame, ...]
    thread: str = "MainThread"
    at: float = 0.0
    fatal: bool = True


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
    open_calls: tuple[Collective, ...] = ()
    steps: tuple[StepEntry, ...] = ()  # oldest first
    loaders: tuple[LoaderFacts, ...] = ()
    exception: ExceptionFacts | None = None
    times: StepTimes = field(default_factory=StepTimes)
    groups_made: tuple[GroupMade, ...] = ()
    detached: bool = False
    problems: tuple[str, ...] = ()  # what the probe could not do, in words
    lasting_threads: tuple[int, ...] | None = None  # system ids of threads that are no daemons, at the last look


# ---------------------------------------------------------------- evidence of one moment


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
    ended_at: float | None = None  # when its process ended, where the watchdog saw it; tells who died first
    phases: tuple[PhaseSpan, ...] = ()  # its last minutes, oldest first
    held: str = ""  # the fact that keeps it from going on by itself: "waits in read on pipe:[7]"; shortens patience

    @property
    def stalled(self) -> bool:
        return self.still_s > self.patience_s

    @property
    def main_stack(self) -> tuple[Frame, ...]:
        return next((stack.frames for stack in self.stacks if stack.main), ())


@dataclass(frozen=True)
class PhaseSpan:
    """A phase in which a rank was seen: from `at` to the next span's, or until the evidence was taken.

    The watchdog looks about once a second, so phases between two looks are missing. `step` is the last one seen in it.
    """

    at: float
    phase: Phase
    step: int


@dataclass(frozen=True)
class LockFile:
    """A lock file that a rank waits for, and who holds it (None: nobody alive)."""

    path: str
    owner_pid: int | None
    owner_alive: bool
    age_s: float
    inferred: bool = False  # the rank sleeps with it open while another has locked it, as databases try again and again


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
    exact: bool = True  # false: it happened in `step` or before, when nobody looked; `counts` are of all those steps
    doubtful: bool = False  # perhaps only a count of steps fell behind: all made whole turns of the loop


@dataclass(frozen=True)
class Pipe:
    """Who holds the ends of a pipe that somebody is blocked on, among the processes that may be looked into."""

    path: str  # "pipe:[123]", or the path of a FIFO
    readers: tuple[int, ...] = ()
    writers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launched:
    """A process that its environment calls a rank, whether it ever became one or not.

    `ended_at` is None while it lives; `exit_code` is negative for a signal, None where nobody told. `board` says that
    a board of it was seen.
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
class NodeFacts:
    """One machine of the job. `clock_offset_s` is its clock minus the judge's, where several nodes are judged."""

    host: str
    ranks: tuple[int, ...] = ()
    silent_s: float = 0.0  # since its watchdog was last heard of
    clock_offset_s: float = 0.0
    gpus: tuple[GpuFacts, ...] = ()
    shm_total: int | None = None
    shm_free: int | None = None
    memory_limit: int | None = None
    memory_used: int | None = None
    oom_kills: int | None = None  # in the job's cgroup, since the watchdog started
    master_listener: ProcessFacts | None = None  # who listens on MASTER_PORT, on the master's node
    master_resolves: bool | None = None
    addresses: tuple[str, ...] = ()
    pipes: tuple[Pipe, ...] = ()  # those that somebody is blocked on, or that an orphan holds open


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
    whole loop in which the call stands.
    """

    where: Frame
    text: str
    inner: bool = True


@dataclass(frozen=True)
class CallSite:
    """The user's own frames that lead to a call, innermost first, and the ways past it."""

    frames: tuple[Frame, ...]
    bypasses: tuple[Bypass, ...]


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
    call_sites: tuple[CallSite, ...] = ()  # of recorded calls, those that a turn of the loop can pass by


# ---------------------------------------------------------------- judgement


@dataclass(frozen=True)
class Culprit:
    """Who is to blame. `where` is the user's own line where one is known, `excerpt` that line with its surroundings."""

    rank: int | None
    pid: int | None = None
    host: str = ""
    process: str = "rank"  # rank | loader-worker | launcher | other
    where: Frame | None = None
    excerpt: Excerpt | None = None


@dataclass(frozen=True)
class StepName:
    """A step in the user's terms; parts that are not known are None."""

    epoch: int | None = None
    batch: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class Alternative:
    """A cause that was weighed and not chosen."""

    cause: str
    certainty: Certainty
    why_not: str


@dataclass(frozen=True)
class Wait:
    """One edge of the wait-for graph: `rank` waits for `awaited` in `what`."""

    rank: int
    awaited: tuple[int, ...]
    what: str  # "all_reduce 12 of group 0", "batch from loader worker 3", ...
    where: Frame | None = None
    also: tuple[int, ...] = ()  # further ranks that wait alike, so that thousands need one edge


@dataclass(frozen=True)
class Verdict:
    """The two answers. `summary` is one sentence for a person; `culprits` is empty where no rank is to blame.

    *Is the job dead?* `hang` is PROVEN where no rank that is left can ever move, LIKELY where patience ran out, and
    None where the job is not called hung; `argument` says why, in sentences. *Whose fault, and why?* `certainty` is
    that of `cause` and `culprits`. The first never lends its word to the second.
    """

    cause: str
    certainty: Certainty
    summary: str
    fix: str = ""
    docs: str = ""
    culprits: tuple[Culprit, ...] = ()
    victims: tuple[int, ...] = ()
    step: StepName = field(default_factory=StepName)
    evidence: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    waits: tuple[Wait, ...] = ()  # the shortest chain from victims to the cause
    details: tuple[str, ...] = ()  # further sentences for the terminal: who waits where
    hang: Certainty | None = None
    argument: tuple[str, ...] = ()  # why the job is dead: the waits, and the conditions that were checked


@dataclass(frozen=True)
class Judgement:
    """What `diagnose` returns: the verdict, the job's state and the stage in which it stopped."""

    status: Status
    stage: Stage
    verdict: Verdict


@dataclass(frozen=True)
class HealthWarning:
    """Not a hang, but worth a word, live and in the report (the Health table of the catalogue)."""

    kind: str  # catalogue id, e.g. "uneven-forecast"
    summary: str
    ranks: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    fix: str = ""
    at: float = 0.0


@dataclass(frozen=True)
class StackNode:
    """A node of the merged stack tree: `ranks` are those with this frame on the way from the root."""

    frame: Frame
    ranks: tuple[int, ...]
    children: tuple[StackNode, ...] = ()


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
    ended_at: float | None = None
    phases: tuple[PhaseSpan, ...] = ()
    held: str = ""


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


# ---------------------------------------------------------------- between a node and the dashboard


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
class NodeHello:
    """What of a node does not change by the second: sent first, after a change, and when the dashboard asks."""

    job: Job
    host: str
    started_at: float  # the watchdog's
    ranks: tuple[Identity, ...] = ()
    groups: tuple[GroupMembers, ...] = ()
    hangwatch_version: str = ""


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

    Long lists of members stand once in `groups`; see `hangwatch.compact`.
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
