"""What the system says of processes, their files and their GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.model.stack import ThreadStack


@dataclass(frozen=True)
class OpenFile:
    """A descriptor that matters: what a thread waits on, or standard output."""

    fd: int
    path: str  # a path, "pipe:[123]", "socket 10.0.0.1:4000 -> 10.0.0.2:29500"
    filesystem: str | None = None  # "nfs4", "ext4", ...; "fifo" for a named pipe, wherever its name is

    @property
    def is_pipe(self) -> bool:
        """A pipe without a name, as processes have to those that they start."""
        return self.path.startswith("pipe:[")


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
    # CPU time spent between the two samples, without what threads spent that ask for messages again and again, nor what
    # a rank spent for us
    cpu_delta_s: float | None = None
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
    times_out_s: float | None = None  # in how long, at most, the call in which its main thread waits gives up by itself
    has_alarm: bool = False  # it handles SIGALRM, which may take it out of any wait
    private_wait: bool = False  # the main thread waits, without a timeout, for what only its own threads can give
    received_bytes: int | None = None  # over the TCP connection that its main thread waits on, since that was made
    received_delta_bytes: int | None = None  # of these, between the two samples: it waits for more of what comes
    deadlocked: bool = False  # and so does every other thread of it: no thread is left to release it
    polling_s: float | None = None  # of `cpu_s`, what threads used that ask for messages again and again


@dataclass(frozen=True)
class LockOwner:
    """A living process that holds a lock, and what it is to the job. `rank` is the rank that it belongs to."""

    pid: int
    # "rank", "leftover" (it was a rank of an earlier run, whose launcher is gone), "stranger" (no part of the job), or
    # a role of ProcessEvidence
    role: str = "stranger"
    rank: int | None = None
    command: str = ""  # redacted
    started_at: float | None = None
    cpu_delta_s: float | None = None  # CPU time that it and what it has started spent between the two samples


@dataclass(frozen=True)
class LockFile:
    """A lock file that a process waits for, and the process that holds it (None: no living one that can be seen)."""

    path: str
    owner_pid: int | None  # of a dead process: the one that the text of the file names as its maker
    owner_alive: bool  # true as well where the kernel shows that the lock is held, and not by which process
    age_s: float
    inferred: bool = False  # the rank sleeps with it open while another has locked it, as databases try again and again
    filesystem: str = ""  # "nfs4", "ext4", ...
    owner: LockOwner | None = None
    thread: int | None = None  # of a process whose main thread waits for another one: that one, which waits for it


@dataclass(frozen=True)
class PolledFile:
    """A file for which a loop of the program's looks again and again, by a variable that the loop's own line names.

    Source: the rank itself for the path, the watchdog for the rest. `beside` is the newest file of the same ending in
    its folder, where one has come since the rank began; else the newest of that very name in a folder next to its own,
    with the name of that folder (`run-2/index.done`).
    """

    path: str
    exists: bool
    age_s: float = 0.0  # since it was last written
    held: bool = False  # a living process that can be seen has it open
    filesystem: str = ""  # "nfs4", "ext4", ...
    beside: str = ""
    beside_age_s: float = 0.0


@dataclass(frozen=True)
class ProcessEvidence:
    """A process that is no rank (loader worker, launcher, child, orphan): its facts and its stacks."""

    # "loader-worker", "launcher", "compile-worker", "helper" (resource tracker, fork server, torch_shm_manager),
    # "child" (of a rank), "orphan" (of a rank or launcher that is gone), "job" (of the job, part not known),
    # "stranger" (no part of the job, with memory on one of its GPUs)
    role: str
    facts: ProcessFacts
    stacks: tuple[ThreadStack, ...] = ()
    earlier_stacks: tuple[ThreadStack, ...] = ()
    rank: int | None = None  # the rank that it belongs to
    worker: int | None = None  # index of a loader worker
    sample: str | None = None  # the sample index or batch of indices that a worker holds
    last_output: str = ""  # last lines of its log, where a log file exists
    lock_files: tuple[LockFile, ...] = ()  # those that it waits for


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


@dataclass(frozen=True)
class Pipe:
    """Processes that hold the ends of a pipe on which a process is blocked, of those that may be inspected."""

    path: str  # "pipe:[123]", or the path of a FIFO
    readers: tuple[int, ...] = ()
    writers: tuple[int, ...] = ()
