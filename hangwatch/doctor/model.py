"""What a preflight has seen of each rank, and what its checks say of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from hangwatch.model import GpuFacts


class State(StrEnum):
    """What a check says. `skip` is what does not apply here, such as NCCL without GPUs."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: what was seen, and where it is not well, what to do."""

    family: str
    name: str
    state: State
    found: str
    advice: str = ""
    ranks: tuple[int, ...] = ()
    details: tuple[str, ...] = ()


# ---------------------------------------------------------------- facts of one rank


@dataclass(frozen=True)
class Lookup:
    """A name that a rank has looked up."""

    name: str
    addresses: tuple[str, ...] = ()
    took_s: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class Interface:
    """An IPv4 address of a network interface."""

    name: str
    address: str
    network: str  # 10.79.0.0/24
    up: bool = True
    loopback: bool = False
    mtu: int = 0


@dataclass(frozen=True)
class Stage:
    """A part of the probe's work, in the order in which it began. `problem` is empty where all went well."""

    name: str
    done: bool = False
    took_s: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class Link:
    """What one rank has measured towards another. `kind` is "tcp", "gloo" or "nccl"; bandwidth is in bytes a second."""

    peer: int
    kind: str
    ok: bool
    address: str = ""
    problem: str = ""
    latency_s: float | None = None
    bandwidth: float | None = None
    clock_offset_s: float | None = None  # the peer's clock less ours


@dataclass(frozen=True)
class System:
    """Limits of the process and of its container. None: not known or no limit."""

    shm_total: int | None = None
    shm_free: int | None = None
    open_files: int | None = None
    locked_memory: int | None = None
    processes: int | None = None
    ptrace_scope: int = 0
    can_ptrace: bool = False
    container: str = ""  # how we know of one: /.dockerenv, KUBERNETES_SERVICE_HOST
    memory_limit: int | None = None
    processors: int | None = None  # that this process may run on, its cgroup's quota included


@dataclass(frozen=True)
class Code:
    """The user's script: its path, a digest of the file, and the commit of the repository that it lies in."""

    script: str = ""
    digest: str = ""
    commit: str = ""
    changed: bool = False  # files differ from the commit


@dataclass(frozen=True)
class Fabric:
    """What stands between GPUs, and between hosts. Lists are empty where there is nothing, or no right to look."""

    iommu: bool = False
    acs_bridges: tuple[str, ...] = ()  # PCI bridges that send peer-to-peer traffic up to the root
    ports: tuple[str, ...] = ()  # "mlx5_0/1 InfiniBand ACTIVE"
    gids: tuple[str, ...] = ()  # "mlx5_0/1 3 RoCE v2 ::ffff:10.0.0.1"
    no_peer_access: tuple[str, ...] = ()  # "GPU 0 - GPU 1: chipset not supported"


@dataclass(frozen=True)
class RankFacts:
    """All that the probe in one rank's place has found. `sequence` counts its words: the last is the most complete."""

    rank: int
    world_size: int
    host: str
    pid: int
    sequence: int = 0
    complete: bool = False
    at: float = 0.0
    local_rank: int | None = None
    local_world_size: int | None = None
    node_rank: int | None = None
    asked_host: str = ""  # where `--hosts` wanted it
    launcher: str = ""
    master: str = ""  # MASTER_ADDR:MASTER_PORT
    store_elsewhere: bool = False  # torchrun's agent serves the store, not rank 0
    store: str = ""  # "" while unknown, "reached", or why not
    environment: dict[str, str] = field(default_factory=dict)
    lookups: tuple[Lookup, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    route: str = ""  # the interface by which packets to MASTER_ADDR leave
    address: str = ""  # where gloo would listen
    roster: tuple[int, ...] = ()  # the ranks that took part in the talks
    twice: tuple[int, ...] = ()  # ranks that came more than once
    system: System = field(default_factory=System)
    versions: dict[str, str] = field(default_factory=dict)
    code: Code = field(default_factory=Code)
    gpus: tuple[GpuFacts, ...] = ()
    gpu_note: str = ""
    gpu_used: str = ""  # the uuid of the GPU that torch gives this rank
    gpu_problem: str = ""  # why torch cannot compute on it
    gpu_strangers: dict[str, str] = field(default_factory=dict)  # pid: command, of processes that hold GPU memory
    fabric: Fabric = field(default_factory=Fabric)
    stages: tuple[Stage, ...] = ()
    links: tuple[Link, ...] = ()


# ---------------------------------------------------------------- the whole


@dataclass(frozen=True)
class Launch:
    """How the job's launch went. `exit_code` is None where it had to be ended."""

    command: tuple[str, ...] = ()
    exit_code: int | None = None
    took_s: float = 0.0
    problem: str = ""  # it could not be started
    output: tuple[str, ...] = ()  # its last lines that are not ours
    endpoint: str = ""  # the rendezvous that the command names
    endpoint_problem: str = ""
    expected: int | None = None  # ranks that the command asks for, where it says so
    asked_hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """The facts of all ranks that were heard of, by rank; a rank that came twice is there twice."""

    ranks: tuple[RankFacts, ...]
    launch: Launch

    @property
    def world_size(self) -> int:
        return max((each.world_size for each in self.ranks), default=self.launch.expected or 0)

    @property
    def by_host(self) -> dict[str, list[RankFacts]]:
        hosts: dict[str, list[RankFacts]] = {}
        for each in self.ranks:
            hosts.setdefault(each.host, []).append(each)
        return hosts


@dataclass(frozen=True)
class Report:
    """The result of `hangwatch.doctor.run`."""

    checks: tuple[Check, ...]
    job: Job
    at: float
    took_s: float
    hangwatch_version: str = ""

    @property
    def worst(self) -> State:
        return worst(self.checks)


def worst(checks: Iterable[Check]) -> State:
    """The worst state of these checks; OK without any."""
    found = {check.state for check in checks}
    return next((state for state in (State.FAIL, State.WARN) if state in found), State.OK)
