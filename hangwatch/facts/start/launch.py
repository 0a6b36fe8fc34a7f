"""What the launch says of itself: the scheduler's numbers, the launchers' options, the ranks' own settings.

A launch cannot come together where these contradict each other. A rank that was simply not started contradicts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hangwatch.facts.case import Case
from hangwatch.facts.start.arrivals import host_of
from hangwatch.launchers import number
from hangwatch.model import Launched, ProcessEvidence, RankEvidence
from hangwatch.stacks.frames import main_thread_of, name_of

LOOPBACK = ("127.", "localhost", "::1")
_OPTION = re.compile(r"--([a-z][a-z0-9_-]*)(?:=|\s+)([^\s-]\S*)")
_SHORT = {"machine-rank": "node-rank", "num-machines": "nnodes", "num-nodes": "nnodes"}
_BY_ENVIRONMENT = "PET_"  # torchrun takes each option from a variable of this name as well


@dataclass(frozen=True)
class Scheduler:
    """A scheduler's variables: `task` and `tasks` are the number of this task, and that of all."""

    program: str
    task: str
    tasks: tuple[str, ...]


SCHEDULERS = (
    Scheduler("mpirun", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    Scheduler("srun", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")),
    Scheduler("mpiexec", "PMI_RANK", ("PMI_SIZE",)),
)
JOB_NODES = "SLURM_JOB_NUM_NODES"  # of the whole job; SLURM_NNODES is that of the step, of which a job may have many


@dataclass(frozen=True)
class Task:
    """A process that is a rank by its settings, with the numbers that its scheduler gave it."""

    pid: int | None
    host: str
    rank: int
    settings: Mapping[str, str]
    alive: bool

    @property
    def world_size(self) -> int | None:
        return number(self.settings, "WORLD_SIZE")

    @property
    def elastic(self) -> bool:
        """torchrun has started it, and has given it its numbers."""
        return "TORCHELASTIC_RUN_ID" in self.settings


@dataclass(frozen=True)
class Agent:
    """A launcher such as torchrun: its options, by the command line or the environment, and where it stands."""

    process: ProcessEvidence

    @property
    def pid(self) -> int:
        return self.process.facts.pid

    def option(self, name: str) -> str:
        """The value of `--name`; "" where it is not given."""
        found: dict[str, str] = {}
        for key, value in _OPTION.findall(self.process.facts.command):
            plain = key.replace("_", "-")
            found.setdefault(_SHORT.get(plain, plain), value)
        variable = _BY_ENVIRONMENT + name.upper().replace("-", "_")
        return found.get(name) or self.process.facts.environment.get(variable, "")

    @property
    def nodes(self) -> int:
        """The least number of nodes that it waits for; 0 where it does not say."""
        least = self.option("nnodes").partition(":")[0]
        return int(least) if least.isdigit() else 0

    @property
    def endpoint(self) -> str:
        """HOST:PORT of the rendezvous; "" where it is torchrun's own choice."""
        given = self.option("rdzv-endpoint")
        address, port = self.option("master-addr"), self.option("master-port")
        return given or (f"{address}:{port or '29500'}" if address else "")

    @property
    def functions(self) -> frozenset[str]:
        stack = main_thread_of(self.process.stacks)
        return frozenset(name_of(frame.function) for frame in stack.frames) if stack is not None else frozenset()

    @property
    def waits(self) -> bool:
        """It stands in the rendezvous of the nodes."""
        return "next_rendezvous" in self.functions or self.connects

    @property
    def connects(self) -> bool:
        """It tries to connect to the rendezvous's store, which another node is to host."""
        return "_create_tcp_store" in self.functions and not self.hosts

    @property
    def hosts(self) -> bool:
        port = self.endpoint.rpartition(":")[2]
        return any(each.state == "listen" and each.local.endswith(f":{port}") for each in self.process.facts.sockets)

    @property
    def job_nodes(self) -> int | None:
        """The nodes that the scheduler has given to the job."""
        return number(self.process.facts.environment, JOB_NODES)


def tasks(case: Case) -> list[Task]:
    """All processes that claim a rank, those included that claim the same one."""
    found = {entry.pid: _of_rank(entry) for entry in case.snapshot.ranks if entry.pid is not None}
    for each in case.snapshot.launched:
        started = _of_launched(each, host_of(case))
        known = found.get(each.pid, started)  # of a process that has ended, the start alone tells its environment
        found[each.pid] = replace(known, settings={**started.settings, **known.settings})
    return list(found.values())


def started_by_scheduler(found: list[Task]) -> Scheduler | None:
    """The scheduler that has started these tasks one by one: each of them has a number of its own there."""
    for scheduler in SCHEDULERS:
        numbers = [number(each.settings, scheduler.task) for each in found]
        if None not in numbers and len(set(numbers)) == len(numbers) > 0:
            return scheduler
    return None


def _of_rank(entry: RankEvidence) -> Task:
    process, reading = entry.process, entry.reading
    settings = dict(process.environment) if process is not None else {}
    if reading is not None:
        settings |= reading.identity.environment
        if reading.identity.world_size is not None:
            settings["WORLD_SIZE"] = str(reading.identity.world_size)
    alive = process is not None and process.state not in ("X", "Z")
    return Task(entry.pid, entry.host, entry.rank, settings, alive)


def _of_launched(each: Launched, host: str) -> Task:
    settings = dict(each.environment)
    if each.world_size is not None:
        settings["WORLD_SIZE"] = str(each.world_size)
    return Task(each.pid, host, each.rank, settings, each.ended_at is None)


def agents(case: Case) -> list[Agent]:
    """The launchers that wait for other nodes."""
    return [agent for each in case.snapshot.launchers if (agent := Agent(each)).waits]


def on_their_way(case: Case, endpoint: str) -> bool:
    """A launcher that is to meet others at `endpoint` has not come to the rendezvous yet."""
    known = (Agent(each) for each in case.snapshot.launchers)
    return any(each.functions and each.endpoint == endpoint and not each.waits for each in known)


def first_number(settings: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, int] | None:
    """The first of these variables that holds a number, with it."""
    return next(((name, found) for name in names if (found := number(settings, name)) is not None), None)


def is_loopback(address: str) -> bool:
    return address.startswith(LOOPBACK)
