"""What the system would say of a simulated rank and its loader workers."""

from __future__ import annotations

from hangwatch.model import Frame, ProcessEvidence, ProcessFacts, ThreadStack

from .acts import DeviceWait
from .calls import Thread
from .looks import LOADER_KINDS, LOOKS, Look
from .machine import Machine
from .places import SCRIPT, STDLIB, TORCH
from .ranks import Rank


def process_of(machine: Machine, rank: Rank) -> ProcessFacts:
    pid, command = 4000 + rank.number, "python train.py"
    if not rank.living:
        return ProcessFacts(pid, "X", command=command, exit_code=rank.code)
    if rank.state == "T":
        return ProcessFacts(pid, "T", command=command, cpu_delta_s=0.0, io_delta_bytes=0, written_delta_bytes=0)
    main = rank.threads[0]
    look = LOOKS[main.slow.kind] if main.slow is not None else _waiting_look(machine, main)
    others = [LOOKS[thread.slow.kind] for thread in rank.threads[1:] if thread.running and thread.slow is not None]
    cpu = look.cpu + sum(each.cpu for each in others) + 0.004
    return ProcessFacts(
        pid,
        "D" if rank.state == "D" else look.state,
        command=command,
        cpu_delta_s=cpu,
        io_delta_bytes=look.io + sum(each.io for each in others) + 4096,
        written_delta_bytes=look.written,
        threads=6,
        wait_channel=look.channel or ("futex_do_wait" if look.state == "S" else ""),
        system_call=look.call or ("futex" if look.state == "S" else None),
        blocked_on=look.blocked_on,
        sleeps_s=look.sleeps,
    )


SPINNING = Look(cpu=1.0, state="R")
WAITING = Look(call="futex", channel="futex_do_wait")


def _waiting_look(machine: Machine, thread: Thread) -> Look:
    """A wait for the device spins; so does NCCL's barrier, which waits for the device."""
    if isinstance(thread.act, DeviceWait) or any(machine.on_device(call) for call in thread.waits):
        return SPINNING
    return WAITING


WORKER = (
    Frame(f"{TORCH}/utils/data/_utils/fetch.py", 54, "_MapDatasetFetcher.fetch"),
    Frame(f"{TORCH}/utils/data/_utils/worker.py", 349, "_worker_loop"),
    Frame(f"{STDLIB}/multiprocessing/process.py", 108, "Process.run"),
)
IDLE_WORKER = (
    Frame(f"{STDLIB}/multiprocessing/connection.py", 1136, "wait"),
    Frame(f"{STDLIB}/multiprocessing/queues.py", 122, "Queue.get"),
    Frame(f"{TORCH}/utils/data/_utils/worker.py", 302, "_worker_loop"),
    Frame(f"{STDLIB}/multiprocessing/process.py", 108, "Process.run"),
)


def workers_of(rank: Rank) -> tuple[ProcessEvidence, ...]:
    slow = rank.threads[0].slow
    if slow is None or slow.kind not in LOADER_KINDS:
        return ()
    return (_worker(rank, 0, slow.kind), _worker(rank, 1, ""))


def _worker(rank: Rank, index: int, kind: str) -> ProcessEvidence:
    """A loader worker: idle, or as the kind of slow act says."""
    pid = 9000 + 10 * rank.number + index
    user = Frame(SCRIPT, 152, "__getitem__")
    frames = (user, *WORKER) if kind else IDLE_WORKER
    state = {"loader-died": "X", "loader-stopped": "T", "loader-slow": "R"}.get(kind, "S")
    stacks = () if state == "X" else (ThreadStack(pid, "MainThread", frames, main=True),)
    facts = ProcessFacts(
        pid,
        state,
        parent=4000 + rank.number,
        command="python train.py",
        cpu_delta_s=0.95 if kind == "loader-slow" else 0.0,
        io_delta_bytes=0,
        threads=2,
        exit_code=-9 if state == "X" else None,
        system_call="read" if kind == "loader" else "poll",
    )
    return ProcessEvidence("loader-worker", facts, stacks, stacks, rank.number, index)
