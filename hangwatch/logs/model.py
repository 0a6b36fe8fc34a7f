"""What is kept of logs: facts, each with the rank that it is about where that is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from hangwatch.model import Frame, ThreadStack
from hangwatch.ras import Answer

Written = tuple[int | None, tuple[ThreadStack, ...]]  # pid, where it is told, and stacks of a process
UNNUMBERED = -1  # what torch before 2.0 gave up: its lines number no calls


@dataclass
class Timeout:
    """torch's watchdog gave up on a call that `rank` had enqueued: the rank is a victim."""

    rank: int
    number: int
    op: str
    given: int | None = None  # elements of the inputs
    made: int | None = None  # elements of the outputs
    timeout_s: float | None = None
    frames: list[Frame] = field(default_factory=list)


@dataclass(frozen=True)
class Progress:
    """How far `rank` was in a group, in the watchdog's words. `number` is the call that it gave up, if any.

    `place` is the rank within the group.
    """

    rank: int
    group: str
    description: str
    enqueued: int
    completed: int
    started: int = -1
    number: int | None = None
    place: int | None = None


@dataclass(frozen=True)
class Reached:
    """How far a rank's device was, by torch's desync report: the call that it has started last, or finished too."""

    number: int
    finished: bool
    op: str = ""


@dataclass
class Desync:
    """A desync report of torch's: by the ranks' numbers within the group, which it rarely names."""

    group: str = ""  # "0" of the default one, "" where no line tells
    place: int | None = None  # of the rank that wrote it, within the group
    rank: int | None = None  # and in the job, where a line or the file's name tells
    reached: dict[int, Reached] = field(default_factory=dict)
    never: set[int] = field(default_factory=set)  # ranks that had started no call
    whole: bool = False  # all ranks of the group are in it


@dataclass
class Communicator:
    """A communicator of NCCL's by its commId: which ranks began to set it up, and which came to the end.

    The ranks are its own numbers, which are those of the job only where it is the communicator of all ranks.
    """

    identifier: str
    size: int
    begun: dict[int, str] = field(default_factory=dict)  # rank to host
    complete: set[int] = field(default_factory=set)
    processes: dict[int, tuple[str, int]] = field(default_factory=dict)  # rank to host and pid


class Fault(StrEnum):
    """What a warning of NCCL is about."""

    DUPLICATE = "duplicate"  # two ranks on one GPU
    CUDA = "cuda"  # an error of the rank's own device or driver
    MEMORY = "memory"  # shared memory of the host
    LIMIT = "limit"  # of what a process may have on its host: files, threads, memory
    UNLIKE = "unlike"  # the two ends do not speak alike, as different versions of NCCL do
    NETWORK = "network"
    PEER = "peer"  # the other end closed the connection: its process has ended, or never was there


@dataclass
class Warned:
    """A warning of NCCL, `count` times; `processes` are those that wrote it, by host and pid.

    `pending` are those of which no later line of the same log shows that they went on; ("", 0) is one that is not
    named. There are none where NCCL does without what it warns of.
    """

    fault: Fault
    count: int = 0
    host: str = ""
    processes: dict[tuple[str, int], None] = field(default_factory=dict)
    pending: set[tuple[str, int]] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)  # where the warning or its file names them
    peers: dict[str, None] = field(default_factory=dict)  # addresses or names of the other end


@dataclass
class NoInterface:
    """NCCL found no network interface that it may use: in which processes, by host and pid, and of which ranks."""

    processes: dict[tuple[str, int], None] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Raised:
    """The exception that ended a rank, from its traceback. `ended` is False where it may have been caught and told.

    `last` says that nothing comes behind it in the rank's own file. `then` is what was raised while it was handled, and
    ended the rank. `late` says that the rank's watchdog had given up before, `introduced` that a line of the rank
    that tells of trouble stands before it, and `went_on` that the rank, or the job, went on behind it.
    """

    text: str
    where: Frame | None = None
    ended: bool = False
    last: bool = False
    then: str = ""
    late: bool = False
    introduced: bool = False
    went_on: bool = False


@dataclass(frozen=True)
class Failure:
    """A process that failed, mostly as torchrun saw it. `first` marks the one that it calls the root cause."""

    rank: int
    host: str = ""
    pid: int | None = None
    exit_code: int | None = None
    text: str = ""
    first: bool = False
    where: Frame | None = None
    at: str = ""  # when torchrun saw it, to the second


@dataclass(frozen=True)
class Reaped:
    """A process whose end a launcher saw that knows the rank within its node only, or what else it is by `name`."""

    local_rank: int
    pid: int | None
    exit_code: int | None  # None where it raised an exception
    text: str = ""
    where: Frame | None = None
    name: str = ""
    told: str = ""  # what is known of it, where it has a name


@dataclass(frozen=True)
class Task:
    """How srun says that a task of Slurm ended, and on which host; `late`: when the step was being ended already."""

    said: str
    host: str = ""
    late: bool = False


@dataclass(frozen=True)
class DeadWorker:
    """A worker of Ray that died, by pid (None where it is not told) and address, and why if Ray knows."""

    pid: int | None
    host: str
    of_memory: bool = False
    used: str = ""  # memory, in Ray's words
    rank: int | None = None


@dataclass
class Pod:
    """A container of a pod of Kubernetes, as it stands now (`state`) and as it has ended last."""

    name: str
    node: str = ""
    container: str = ""  # "" of the pod as a whole, or where no line tells
    state: str = ""  # Running, Waiting, Terminated
    reason: str = ""  # of the pod as a whole
    message: str = ""  # on its eviction
    reasons: dict[bool, str] = field(default_factory=dict)  # of what is now (True), and of the last end
    codes: dict[bool, int] = field(default_factory=dict)

    def note(self, now: bool, state: str = "", reason: str = "", code: str = "") -> None:
        """Keep what is said of the state now, or of the last one."""
        if now and state:
            self.state = state
        if reason:
            self.reasons[now] = reason
        if code.isdecimal():
            self.codes[now] = int(code)

    @property
    def well(self) -> bool:
        """It works, or has come to its end as it should."""
        return self.runs or self.codes.get(True) == 0

    @property
    def runs(self) -> bool:
        return self.state == "Running"

    @property
    def ended_by(self) -> str:
        return self.reason or self.reasons.get(self._of_now, "")

    @property
    def exit_code(self) -> int | None:
        return self.codes.get(self._of_now)

    @property
    def _of_now(self) -> bool:
        """Whether the end that counts is of the state now, and not of the one before."""
        return True in self.codes


@dataclass(frozen=True)
class Event:
    """An event of Kubernetes on a pod or a node; `age_s` is the time since it was seen last, where that is told."""

    kind: str
    name: str
    reason: str
    said: str = ""
    age_s: float | None = None


@dataclass(frozen=True)
class KernelSaid:
    """A sentence of a host's kernel log on a process (None where it does not say which), or on a GPU by its address."""

    pid: int | None
    exit_code: int | None
    text: str
    gpu: str = ""
    host: str = ""
    name: str = ""  # of the process


@dataclass(frozen=True)
class RasSaid:
    """An answer of NCCL's RAS service, in which file it is, which one there, and when that was written."""

    answer: Answer
    path: Path | None = None
    place: int = 0
    written: float = 0.0


@dataclass
class LateAtBarrier:
    """A monitored barrier gave up: `ranks` had not come to it within `timeout_s`; rank 0 waited at `where`."""

    ranks: set[int]
    timeout_s: float
    where: Frame | None = None


@dataclass
class Logs:
    """The facts of all logs that were read."""

    files: list[Path] = field(default_factory=list)
    timeouts: list[Timeout] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    communicators: dict[str, Communicator] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    launchers: dict[str, None] = field(default_factory=dict)  # how a launcher's own rendezvous failed, in its words
    not_started: dict[str, str] = field(default_factory=dict)  # that ssh did not reach a node, and which; "" not told
    launch_failed: dict[str, None] = field(default_factory=dict)  # that a launcher could not start a node, in its words
    barriers: dict[int, str] = field(default_factory=dict)  # how each rank gave up the store's barrier at the start
    reaped: dict[str, Reaped] = field(default_factory=dict)  # by launcher and process
    tasks: dict[int, Task] = field(default_factory=dict)  # tasks of Slurm that ended, by their numbers
    pods: dict[tuple[str, str], Pod] = field(default_factory=dict)  # by names of pod and container
    events: list[Event] = field(default_factory=list)
    killed: set[int | None] = field(
        default_factory=set
    )  # ranks of logs that end with a shell's "Killed"; None: unknown
    unreached: dict[str, None] = field(default_factory=dict)  # addresses of stores that refused a connection, and why
    silent_nodes: dict[str, None] = field(default_factory=dict)  # whose launchers could not send a heartbeat
    lost_store: dict[int, str] = field(default_factory=dict)  # by rank the address of the store that it lost
    dead_workers: list[DeadWorker] = field(default_factory=list)
    out_of_memory: dict[str, None] = field(default_factory=dict)  # steps of Slurm in which a process was killed for it
    labelled_tasks: set[int] = field(default_factory=set)  # those of which lines have srun's label
    of_tasks: Logs | None = None  # what lines with srun's label say; its ranks are the numbers of tasks
    launched: bool = False  # a launcher such as torchrun has written lines: a task of Slurm is a launcher then
    noticed: dict[int, Failure] = field(default_factory=dict)  # processes that another launcher saw fail
    noticed_by: dict[int, str] = field(default_factory=dict)  # which one, where it is not mpirun
    labels: set[tuple[int, int]] = field(default_factory=set)  # task of Slurm and torch's own rank in one line
    late: LateAtBarrier | None = None  # the first one that is told of
    kernel: dict[tuple[int | None, str, str], KernelSaid] = field(default_factory=dict)
    gpus: dict[tuple[str, int], str] = field(default_factory=dict)  # PCI address of that of each process
    desyncs: list[Desync] = field(default_factory=list)
    ras: list[RasSaid] = field(default_factory=list)
    ended_by: dict[str, None] = field(default_factory=dict)  # who ended the job from outside, in words
    failed_nodes: set[str] = field(default_factory=set)  # nodes that the scheduler saw fail
    warnings: dict[str, Warned] = field(default_factory=dict)  # of NCCL, about networks and devices
    processes: dict[tuple[str, int], tuple[int, int]] = field(
        default_factory=dict
    )  # largest communicator and rank in it
    raised: dict[int, Raised] = field(default_factory=dict)
    caught: dict[int, Raised] = field(default_factory=dict)  # behind which the rank itself made many turns
    nameless: dict[Raised, None] = field(default_factory=dict)  # tracebacks of which no line tells the rank
    nameless_in: dict[Path, Raised] = field(default_factory=dict)  # the last one of each file
    named_in: dict[Path, set[int]] = field(default_factory=dict)  # the ranks that torch's prefixes name in each file
    group_failed: bool = False  # a launcher that names no rank says that its processes failed
    unused: dict[Path, int] = field(default_factory=dict)  # texts without a line of use, and how many lines they have
    earlier: Logs | None = None  # of the attempt before the last one
    taken_down: set[int] = field(default_factory=set)  # ranks that torch's watchdog ended for a call that failed
    stalls: dict[int, list[str]] = field(default_factory=dict)  # how torch found the watchdog thread of a rank stuck
    networks: dict[str, set[str]] = field(default_factory=dict)  # host to the interfaces that NCCL uses there
    addresses: dict[str, set[str]] = field(default_factory=dict)  # of networks, with the hosts that use them
    no_interface: NoInterface = field(default_factory=NoInterface)
    interface_names: dict[tuple[str, int], str] = field(default_factory=dict)  # NCCL_SOCKET_IFNAME of each process
    used_networks: dict[tuple[str, int], str] = field(default_factory=dict)  # "IB", "Socket": of each process
    versions: dict[tuple[str, int], str] = field(default_factory=dict)  # of NCCL, by host and pid
    transports: dict[str, int] = field(default_factory=dict)  # "P2P/CUMEM", "NET/IB", ...: channels
    stacks: dict[int, Written] = field(
        default_factory=dict
    )  # the last ones of each rank, unless it went on behind them
    stacks_of_none: list[Written] = field(default_factory=list)  # of which no line and no name of a file tells the rank
    last_words: dict[int, str] = field(default_factory=dict)  # the last line of a rank's own
    ranks: set[int] = field(default_factory=set)  # ranks of which there is any line
    # folder of torchrun's attempt on a node to the rank of its first process, None where it is not known
    first_ranks: dict[Path, int | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.files)

    def of_all(self, communicator: Communicator) -> bool:
        """Whether a communicator is of all ranks: none is larger, and others of its size number its processes alike."""
        size = max(each.size for each in self.communicators.values())
        return communicator.size == size and all(
            _numbered_alike(communicator.processes, each.processes)
            for each in self.communicators.values()
            if each.size == size
        )

    def rank_of(self, process: tuple[str, int]) -> int | None:
        """The rank of a process, by the communicator of all ranks; None where it is not known or not the only one."""
        size, rank = self.processes.get(process, (0, -1))
        largest = max((each for each, _ in self.processes.values()), default=0)
        alone = sum(known == (size, rank) for known in self.processes.values()) == 1
        return rank if size == largest and alone else None

    def rank_at(self, gpu: str, host: str = "") -> int | None:
        """The rank of the GPU at a PCI address, where it is that of one process only; `host`: "" where not known."""
        named = [
            process for process, own in self.gpus.items() if own == gpu and (not host or one_host(host, process[0]))
        ]
        return self.rank_of(named[0]) if len(named) == 1 else None

    def ranks_on(self, host: str) -> set[int]:
        """The ranks of a host, as far as lines tell of its processes."""
        told = {self.rank_of(process) for process in self.processes if one_host(process[0], host)}
        return {rank for rank in told if rank is not None}

    def rank_of_pid(self, pid: int) -> int | None:
        """The rank of a process, where one host only has a rank of that pid."""
        named = {self.rank_of(process) for process in self.processes if process[1] == pid}
        named |= {each.rank for each in self.failures.values() if each.pid == pid}
        return named.pop() if len(named) == 1 else None


def one_host(one: str, other: str) -> bool:
    """NCCL leaves the domain of a host's name out."""
    return one.partition(".")[0] == other.partition(".")[0]


def _numbered_alike(one: dict[int, tuple[str, int]], other: dict[int, tuple[str, int]]) -> bool:
    common = set(one.values()) & set(other.values())
    return bool(common) and all(other.get(rank, process) == process for rank, process in one.items())
