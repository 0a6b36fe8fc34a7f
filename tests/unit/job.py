"""Jobs that stop at their start, in their data or at their end, from small parts; the stacks are those of real runs.

They were taken with py-spy from Python 3.11 and torch 2.13; what lies below the user's code is cut.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangwatch.judge import diagnose
from hangwatch.model import (
    Collectives,
    Frame,
    GroupHead,
    GroupMade,
    Identity,
    Job,
    Judgement,
    Launched,
    LoaderFacts,
    NodeFacts,
    Phase,
    ProcessEvidence,
    ProcessFacts,
    Progress,
    RankEvidence,
    Reading,
    Snapshot,
    Socket,
    ThreadStack,
)

NOW = 1000.0
TORCH = "/venv/lib/python3.11/site-packages/torch"
LIB = "/usr/lib/python3.11"
SCRIPT = "/home/ann/train.py"
COMMAND = "python train.py"

USER = (Frame(SCRIPT, 50, "main"), Frame(SCRIPT, 90, "<module>"))


def frames(*inner: tuple[str, int, str], below: tuple[Frame, ...] = USER) -> tuple[Frame, ...]:
    return (*(Frame(*frame) for frame in inner), *below)


C10D = f"{TORCH}/distributed/distributed_c10d.py"
RENDEZVOUS = f"{TORCH}/distributed/rendezvous.py"
CONNECTION = f"{LIB}/multiprocessing/connection.py"
LOADER = f"{TORCH}/utils/data/dataloader.py"
WORKER = f"{TORCH}/utils/data/_utils/worker.py"
FETCH = f"{TORCH}/utils/data/_utils/fetch.py"

IN_STORE = frames(
    (RENDEZVOUS, 199, "_create_c10d_store"),
    (RENDEZVOUS, 280, "_env_rendezvous_handler"),
    (C10D, 1892, "init_process_group"),
)
IN_MESH = frames((C10D, 2169, "_new_process_group_helper"), (C10D, 1899, "init_process_group"))
IN_NEW_GROUP = frames(
    (C10D, 2169, "_new_process_group_helper"), (C10D, 6056, "_new_group_with_tag"), (C10D, 5863, "new_group")
)
IN_BARRIER = frames((C10D, 5356, "barrier"))
IN_BACKWARD = frames(
    (f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward"), (f"{TORCH}/_tensor.py", 623, "backward")
)
IN_LOADER = frames(
    (f"{LIB}/selectors.py", 415, "select"),
    (CONNECTION, 947, "wait"),
    (f"{LIB}/multiprocessing/queues.py", 113, "get"),
    (LOADER, 1291, "_try_get_data"),
    (LOADER, 1464, "_get_data"),
    (LOADER, 1505, "_next_data"),
    (LOADER, 725, "__next__"),
)
IN_RESOURCE_SHARER = frames(
    (CONNECTION, 395, "_recv"),
    (CONNECTION, 768, "answer_challenge"),
    (f"{LIB}/multiprocessing/resource_sharer.py", 86, "get_connection"),
    (f"{TORCH}/multiprocessing/reductions.py", 571, "rebuild_storage_fd"),
    (LOADER, 1291, "_try_get_data"),
    (LOADER, 1464, "_get_data"),
)
IN_BATON = frames(
    (f"{TORCH}/utils/file_baton.py", 50, "wait"), (f"{TORCH}/utils/cpp_extension.py", 2400, "_jit_compile")
)
IN_ITEM = frames((f"{TORCH}/cuda/__init__.py", 1085, "synchronize"))
IN_CODE = USER

_LOOP = (
    Frame(WORKER, 374, "_worker_loop"),
    Frame(f"{LIB}/multiprocessing/process.py", 108, "run"),
    Frame(f"{LIB}/multiprocessing/popen_fork.py", 71, "_launch"),
    Frame(LOADER, 1100, "__init__"),
    *USER,  # a forked worker has its parent's frames below
)
FETCHING = frames((SCRIPT, 12, "__getitem__"), (FETCH, 54, "fetch"), below=_LOOP)
IDLE = frames((f"{LIB}/selectors.py", 415, "select"), (f"{LIB}/multiprocessing/queues.py", 113, "get"), below=_LOOP)
FEEDER = ThreadStack(7, "QueueFeederThread", frames((f"{LIB}/threading.py", 327, "wait"), below=()))
SERVER = ThreadStack(8, "Thread-1 (_serve)", frames((f"{LIB}/socket.py", 294, "accept"), below=()))

IN_SHUTDOWN = frames((f"{LIB}/threading.py", 1590, "_shutdown"), below=())
IN_CHILD_JOIN = frames(
    (f"{LIB}/multiprocessing/popen_fork.py", 27, "poll"),
    (f"{LIB}/multiprocessing/process.py", 149, "join"),
    (f"{LIB}/multiprocessing/util.py", 357, "_exit_function"),
    below=(),
)
IN_FEEDER_JOIN = frames(
    (f"{LIB}/threading.py", 1119, "join"),
    (f"{LIB}/multiprocessing/queues.py", 199, "_finalize_join"),
    (f"{LIB}/multiprocessing/util.py", 300, "_run_finalizers"),
    (f"{LIB}/multiprocessing/util.py", 360, "_exit_function"),
    below=(),
)
IN_HANDLER = (Frame(SCRIPT, 5, "upload"),)
IN_DESTRUCTOR = (Frame(SCRIPT, 11, "close"), Frame(SCRIPT, 10, "__del__"))

IN_WAIT = frames((f"{LIB}/subprocess.py", 2004, "_try_wait"), (f"{LIB}/subprocess.py", 1264, "wait"))
IN_SPAWN_JOIN = frames(
    (f"{LIB}/selectors.py", 415, "select"),
    (CONNECTION, 947, "wait"),
    (f"{TORCH}/multiprocessing/spawn.py", 140, "join"),
    (f"{TORCH}/multiprocessing/spawn.py", 296, "start_processes"),
)
IN_NEXT_RENDEZVOUS = frames(
    (f"{TORCH}/distributed/elastic/rendezvous/utils.py", 181, "_delay"),
    (f"{TORCH}/distributed/elastic/rendezvous/dynamic_rendezvous.py", 1171, "next_rendezvous"),
    (f"{TORCH}/distributed/elastic/agent/server/api.py", 528, "_rendezvous"),
    (f"{TORCH}/distributed/elastic/agent/server/api.py", 916, "_invoke_run"),
    below=(),
)


def main_thread(stack: tuple[Frame, ...]) -> ThreadStack:
    return ThreadStack(1, "MainThread", stack, main=True)


def process(pid: int, state: str = "S", **parts: Any) -> ProcessFacts:
    parts = {"command": COMMAND, "cpu_delta_s": 0.0, "io_delta_bytes": 0, "system_call": "futex", **parts}
    return ProcessFacts(pid, state, **parts)


def connected(port: int = 29500) -> tuple[Socket, ...]:
    return (Socket("127.0.0.1:40000", f"127.0.0.1:{port}", "established"),)


def rank(
    number: int,
    stack: tuple[Frame, ...] = (),
    *,
    phase: Phase = Phase.STEP,
    world_size: int = 2,
    pid: int | None = None,
    threads: tuple[ThreadStack, ...] = (),
    facts: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    launcher: str = "plain",
    still_s: float = 40.0,
    patience_s: float = 30.0,
    issued: int = -1,
    completed: int = -1,
    started_at: float = NOW - 60,
    evidence: dict[str, Any] | None = None,
    **parts: Any,
) -> RankEvidence:
    """One rank that stands in `stack` in both samples. `parts` are of its reading, `evidence` of the evidence."""
    pid = 100 + number if pid is None else pid
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", **(environment or {})}
    heads = () if issued < 0 else (GroupHead("0", tuple(range(world_size)), "", "gloo", issued, completed),)
    identity = Identity(
        number, world_size, number, "node-a", pid, started_at, "job", COMMAND, launcher, environment=settings
    )
    parts = {"progress": Progress(step=5, epoch=0, batch=5), "ticker_at": NOW - 0.1, **parts}
    stacks = (main_thread(stack), *threads) if stack or threads else ()
    return RankEvidence(
        number,
        host="node-a",
        pid=pid,
        reading=Reading(identity, NOW, phase, phase_at=NOW - still_s, heads=heads, **parts),
        process=process(pid, **(facts or {})),
        stacks=stacks,
        earlier_stacks=stacks,
        collectives=Collectives(heads),
        still_s=still_s,
        patience_s=patience_s,
        **(evidence or {}),
    )


def starting(number: int, stack: tuple[Frame, ...] = IN_STORE, **parts: Any) -> RankEvidence:
    """A rank in init_process_group, connected to the store; it has waited for some minutes there."""
    parts = {"still_s": 150.0, "started_at": NOW - 300, **parts}
    facts = {"sockets": connected(), "system_call": "clock_nanosleep", **parts.pop("facts", {})}
    return rank(number, stack, phase=Phase.INIT, facts=facts, progress=Progress(), **parts)


def member(number: int, stack: tuple[Frame, ...], made: tuple[GroupMade, ...] = (), **parts: Any) -> RankEvidence:
    """A rank of a world that is there, with its calls of new_group."""
    world = GroupMade(0, (0, 1, 2), "0", True)
    return rank(number, stack, world_size=3, groups_made=(world, *made), issued=3, completed=3, **parts)


def made(index: int, *members: int, done: bool = True, line: int = 20) -> GroupMade:
    return GroupMade(index, members, str(index), done, Frame(SCRIPT, line, "main"))


def worker(
    index: int, stack: tuple[Frame, ...], *, rank: int = 0, delivered: bool = True, **facts: Any
) -> ProcessEvidence:
    """A loader worker that stands in `stack` in both samples."""
    sample = facts.pop("sample", None)
    pid = facts.pop("pid", 200 + 10 * rank + index)
    stacks = (main_thread(stack), *((FEEDER, SERVER) if delivered else ())) if stack else ()
    facts = {"threads": len(stacks), "parent": 100 + rank, **facts}
    return ProcessEvidence("loader-worker", process(pid, **facts), stacks, stacks, rank, index, sample)


def feeding(number: int, *workers: ProcessEvidence, stack: tuple[Frame, ...] = IN_LOADER, **parts: Any) -> RankEvidence:
    """A rank that waits for a batch of its workers."""
    loader = LoaderFacts(
        0,
        100,
        epoch=0,
        drawn=5,
        inside_next=True,
        num_workers=len(workers),
        worker_pids=tuple(each.facts.pid for each in workers),
    )
    loader = replace(loader, **parts.pop("loader", {}))
    return rank(number, stack, phase=Phase.DATA, loaders=(loader,), evidence={"workers": workers}, **parts)


def leaving(number: int, stack: tuple[Frame, ...], phase: Phase = Phase.MAIN_DONE, **parts: Any) -> RankEvidence:
    """A rank whose main program is over, for longer than its patience."""
    return rank(number, stack, phase=phase, **{"still_s": 12.0, "patience_s": 10.0, **parts})


def gone(
    number: int, code: int | None = 0, phase: Phase = Phase.FINALIZING, state: str = "X", **parts: Any
) -> RankEvidence:
    """A rank whose process has ended."""
    facts = {"state": state, "exit_code": code, "system_call": None, "cpu_delta_s": None, **parts.pop("facts", {})}
    evidence = {"ended_at": NOW - 12, **parts.pop("evidence", {})}
    return rank(number, phase=phase, facts=facts, evidence=evidence, **parts)


def launcher(stack: tuple[Frame, ...] = IN_WAIT, pid: int = 50, **facts: Any) -> ProcessEvidence:
    stacks = (main_thread(stack),) if stack else ()
    return ProcessEvidence("launcher", process(pid, **{"command": "python launch.py", **facts}), stacks, stacks)


def other(pid: int, role: str = "orphan", rank: int | None = None, **facts: Any) -> ProcessEvidence:
    return ProcessEvidence(role, process(pid, **{"command": "sleep 1000", **facts}), rank=rank)


def started(number: int, pid: int | None = None, **parts: Any) -> Launched:
    return Launched(number, 100 + number if pid is None else pid, **{"started_at": NOW - 60, **parts})


def snapshot(
    *ranks: RankEvidence, world_size: int | None = None, node: dict[str, Any] | None = None, **parts: Any
) -> Snapshot:
    size = world_size or max((each.reading.identity.world_size or 0 for each in ranks if each.reading), default=0)
    nodes = (NodeFacts("node-a", tuple(each.rank for each in ranks), **(node or {})),)
    return Snapshot(Job("j", "job", size or None, started_at=NOW - 60), NOW, ranks, nodes=nodes, **parts)


def judge(*ranks: RankEvidence, **parts: Any) -> Judgement:
    return diagnose(snapshot(*ranks, **parts))


def told(judgement: Judgement) -> tuple[str, str, str]:
    """Cause, certainty and status."""
    return judgement.verdict.cause, judgement.verdict.certainty.value, judgement.status.value


def blamed(judgement: Judgement) -> list[tuple[int | None, int | None, str]]:
    """Rank, pid and kind of process of each culprit."""
    return [(who.rank, who.pid, who.process) for who in judgement.verdict.culprits]
