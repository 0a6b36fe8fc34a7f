"""Incidents as they come from real jobs, for tests of what shows them: the terminal, the page, the dashboard.

`uneven_steps()` is a job of two nodes with two ranks each. Rank 3 drew a batch less than the others, has left
the loop and stands at the barrier; the others wait in backward for its gradients. The size can be chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from hangwatch.model import (
    Alternative,
    CaptureNote,
    Certainty,
    Collective,
    Collectives,
    Culprit,
    DiffCall,
    DiffIteration,
    DiffRow,
    Divergence,
    Excerpt,
    Frame,
    GpuFacts,
    GroupHead,
    HealthWarning,
    Identity,
    Incident,
    Job,
    Judgement,
    LoaderFacts,
    NodeFacts,
    OpenFile,
    Phase,
    PhaseSpan,
    ProcessEvidence,
    ProcessFacts,
    Progress,
    RankEvidence,
    RanksDiff,
    Reading,
    Snapshot,
    Stage,
    Status,
    StepEntry,
    StepName,
    StepTimes,
    ThreadStack,
    Verdict,
    Wait,
)
from hangwatch.report import words
from hangwatch.report.incident import incident

HUNG_AT = 1795203000.0  # 20 November 2026, 19:30 UTC
NOTICED_AT = HUNG_AT + 3.1
GIB = 1 << 30
BATCHES = 251
SITE = "/opt/venv/lib/python3.12/site-packages/torch"
SCRIPT = "/home/mia/vision/train.py"
TRAINER = "/opt/venv/lib/python3.12/site-packages/accelerate/accelerator.py"
COMMAND = "torchrun --nnodes 2 --nproc-per-node 2 train.py --data /data/birds"

BACKWARD = Frame(SCRIPT, 71, "train")
BARRIER = Frame(SCRIPT, 88, "main")
EXCERPT = Excerpt(
    SCRIPT,
    88,
    85,
    (
        "        model.train()",
        "        train(model, loader, optimizer, epoch)",
        "        # every rank has finished the epoch",
        "        dist.barrier()",
        "        if rank == 0:",
        "            save(model, epoch)",
        "    dist.destroy_process_group()",
    ),
)
_TRAIN = Frame(SCRIPT, 86, "main")
_OUTERMOST = (Frame(SCRIPT, 96, "<module>"),)
BACKWARD_STACK = (
    Frame("libtorch_cpu.so", 0, "c10d::ProcessGroupGloo::AsyncWork::wait", native=True),
    Frame("libtorch_cpu.so", 0, "c10d::Reducer::finalize_backward", native=True),
    Frame(f"{SITE}/autograd/graph.py", 865, "_engine_run_backward"),
    Frame(f"{SITE}/autograd/__init__.py", 364, "backward"),
    Frame(f"{SITE}/_tensor.py", 630, "backward"),
    BACKWARD,
    _TRAIN,
    *_OUTERMOST,
)
BARRIER_STACK = (
    Frame(f"{SITE}/distributed/distributed_c10d.py", 5012, "barrier"),
    Frame(f"{SITE}/distributed/c10d_logger.py", 83, "wrapper"),
    BARRIER,
    *_OUTERMOST,
)
WORKER_STACK = (
    Frame("/usr/lib/python3.12/multiprocessing/connection.py", 1136, "wait"),
    Frame("/usr/lib/python3.12/multiprocessing/queues.py", 113, "get"),
    Frame(f"{SITE}/utils/data/_utils/worker.py", 275, "_worker_loop"),
    Frame("/usr/lib/python3.12/multiprocessing/process.py", 108, "run"),
)


def uneven_steps(world_size: int = 4, culprit: int = 3, ranks_per_node: int = 2) -> Incident:
    """The incident of a job whose rank `culprit` ran out of data."""
    snapshot = uneven_steps_snapshot(world_size, culprit, ranks_per_node)
    judgement = uneven_steps_judgement(world_size, culprit, ranks_per_node)
    return incident(judgement, snapshot, id="3f2a", opened_at=NOTICED_AT, hangwatch_version="0.1.0")


def uneven_steps_judgement(world_size: int = 4, culprit: int = 3, ranks_per_node: int = 2) -> Judgement:
    victims = tuple(rank for rank in range(world_size) if rank != culprit)
    pid, host = 4708 + culprit, host_of(culprit, ranks_per_node)
    short, who_waits = BATCHES - 1, words.ranks(victims).capitalize()
    verdict = Verdict(
        cause="uneven-steps",
        certainty=Certainty.PROVEN,
        summary=f"Rank {culprit} ran out of data: it drew {short} of {BATCHES} batches in epoch 0 "
        "and has left the loop (dist.barrier, train.py:88).",
        details=(f"{who_waits} wait in loss.backward (train.py:71) for its all_reduce, which will never come.",),
        fix="give every rank the same number of batches: DistributedSampler(..., drop_last=True), or pad the last one",
        docs="https://hangwatch.readthedocs.io/causes#uneven-steps",
        culprits=(Culprit(culprit, pid, host, where=BARRIER, excerpt=EXCERPT),),
        victims=victims,
        step=StepName(epoch=0, batch=short, step=short),
        evidence=(
            f"rank {culprit} drew {short} batches in epoch 0, then its loader ended; others {BATCHES}",
            f"rank {culprit} is in barrier, number {2 * short + 1} of group 0; elsewhere that is all_reduce",
            f"len(loader) is {short} on rank {culprit} and {BATCHES} elsewhere",
        ),
        alternatives=(
            Alternative(
                "rank-zero-only-collective",
                Certainty.UNDETERMINED,
                "no rank is alone in a collective reached from a rank-guarded branch",
            ),
            Alternative("early-exit", Certainty.UNDETERMINED, f"the loader of rank {culprit} is exhausted, not left"),
        ),
        waits=(
            Wait(victims[0], (culprit,), f"all_reduce {2 * short + 1} of group 0", BACKWARD, victims[1:]),
            Wait(culprit, victims, f"barrier {2 * short + 1} of group 0", BARRIER),
        ),
        hang=Certainty.PROVEN,
        argument=(
            f"{who_waits} wait in all_reduce (train.py:71), which cannot complete without rank {culprit}",
            f"Rank {culprit} waits in barrier (train.py:88), which cannot complete without {words.ranks(victims)}",
            "two samples of every waiting rank's stack agree, and none of its counters moved between them",
        ),
        diff=_diff(victims, culprit),
    )
    return Judgement(Status.HUNG, Stage.STEP, verdict)


def _diff(victims: tuple[int, ...], culprit: int) -> RanksDiff:
    """The last step: the others' gradients, which the culprit no longer makes, and its barrier."""
    gradients = DiffCall("gradients", "0", BACKWARD, times=2, open=True, caller=Frame(TRAINER, 204, "backward"))
    barrier = DiffCall("barrier", "0", BARRIER, open=True)
    rows = (
        DiffRow((gradients, None), f"missing on rank {culprit}, which made this call in 7 earlier iterations"),
        DiffRow((None, barrier), f"only rank {culprit}: no other rank was ever here"),
    )
    step = StepName(epoch=0, batch=BATCHES - 1, step=BATCHES - 1)
    return RanksDiff((victims, (culprit,)), len(victims) + 1, (DiffIteration(step, rows),))


def uneven_steps_snapshot(world_size: int = 4, culprit: int = 3, ranks_per_node: int = 2) -> Snapshot:
    """The evidence of the same job."""
    ranks = tuple(_rank(rank, world_size, culprit, ranks_per_node) for rank in range(world_size))
    members = tuple(range(world_size))
    counts = {rank: 1 if rank == culprit else 2 for rank in members}
    return Snapshot(
        job=Job(
            "vision-7c1e",
            "vision",
            world_size,
            "torchrun",
            COMMAND,
            HUNG_AT - 412.0,
            world_size // ranks_per_node,
        ),
        taken_at=NOTICED_AT + 1.2,
        ranks=ranks,
        launchers=tuple(_launcher(first, ranks_per_node) for first in range(0, world_size, ranks_per_node)),
        nodes=tuple(_node(first, world_size, ranks_per_node) for first in range(0, world_size, ranks_per_node)),
        divergences=(Divergence("0", members, BATCHES - 1, 0, BATCHES - 1, counts, (culprit,), seen_at=HUNG_AT + 0.8),),
        warnings=(
            HealthWarning(
                "uneven-forecast",
                f"len(loader) differs across ranks: {BATCHES - 1} on rank {culprit}, {BATCHES} elsewhere; "
                f"the job will hang at step {BATCHES - 1}",
                ranks=(culprit,),
                fix="use DistributedSampler(..., drop_last=True)",
                at=HUNG_AT - 398.0,
            ),
        ),
        notes=(
            CaptureNote("stacks", True, took_s=0.08),
            CaptureNote("collectives", True, "flight recorder", took_s=0.11),
            CaptureNote("process", True, took_s=0.01),
            CaptureNote("gpu", True, took_s=0.02),
            CaptureNote("native stacks", False, "took longer than 2 s", took_s=2.0, rank=culprit),
        ),
        last_progress_at=HUNG_AT,
        excerpts=(EXCERPT,),
    )


def waiting() -> Incident:
    """Rank 0 validates for long while the others wait for it: slow, not hung."""
    verdict = Verdict(
        cause="user-code-blocked",
        certainty=Certainty.LIKELY,
        summary="Ranks 1-3 wait for rank 0, which is at work in evaluate (train.py:112): 38 of 60 batches.",
        culprits=(Culprit(0, 4708, "node-a", where=Frame(SCRIPT, 112, "evaluate")),),
    )
    judgement = Judgement(Status.WAITING, Stage.STEP, verdict)
    return incident(judgement, uneven_steps_snapshot(), id="77aa", opened_at=HUNG_AT + 42.0)


def lingering() -> Incident:
    """Training is over, but a thread that is no daemon keeps rank 1's process."""
    verdict = Verdict(
        cause="exit-non-daemon-thread",
        certainty=Certainty.PROVEN,
        summary="Rank 1 has finished, but its process stays: the thread heartbeat is no daemon and waits in "
        "Event.wait (monitor.py:31).",
        fix="start it as Thread(..., daemon=True), or end it: stop.set() before main returns",
        culprits=(Culprit(1, 4709, "node-a", where=Frame("/home/mia/vision/monitor.py", 31, "beat")),),
        evidence=("the main thread is in threading._shutdown",),
        hang=Certainty.PROVEN,
        argument=("rank 1 waits in threading._shutdown for the thread heartbeat, which waits for an event",),
    )
    judgement = Judgement(Status.LINGERING, Stage.EXIT, verdict)
    return incident(judgement, uneven_steps_snapshot(), id="90cc", opened_at=HUNG_AT + 12.0)


def undetermined() -> Incident:
    """All ranks in the same call, nothing to be seen outside: an honest "not known"."""
    verdict = Verdict(
        cause="undetermined",
        certainty=Certainty.UNDETERMINED,
        summary="All 4 ranks stand still and nothing found says why; the evidence is in the report.",
        fix="look at the stacks; py-spy with native frames or NCCL_DEBUG=INFO may tell more",
        evidence=("all ranks are in the same all_reduce, number 501 of group 0",),
        hang=Certainty.LIKELY,
        argument=("no counter of ranks 0-3 has moved for 2 min 6 s: after 2 min that is called hung",),
    )
    judgement = Judgement(Status.HUNG, Stage.STEP, verdict)
    return incident(judgement, uneven_steps_snapshot(), id="0b0b", opened_at=HUNG_AT + 126.0)


def host_of(rank: int, ranks_per_node: int = 2) -> str:
    node = rank // ranks_per_node
    return f"node-{chr(ord('a') + node)}" if node < 26 else f"node-{node:04d}"


def _rank(rank: int, world_size: int, culprit: int, per_node: int) -> RankEvidence:
    short = rank == culprit
    pid, host = 4708 + rank, host_of(rank, per_node)
    workers = tuple(_worker(rank, pid, index) for index in range(2))
    return RankEvidence(
        rank=rank,
        host=host,
        pid=pid,
        reading=_reading(rank, world_size, short, per_node),
        process=_process(pid, host, per_node, rank, tuple(worker.facts.pid for worker in workers)),
        stacks=(
            ThreadStack(pid, "MainThread", BARRIER_STACK if short else BACKWARD_STACK, False, False, True),
            ThreadStack(pid + 90000, "Thread-1 (_pin_memory_loop)", WORKER_STACK[:2], False, False),
        ),
        earlier_stacks=(
            ThreadStack(pid, "MainThread", BARRIER_STACK if short else BACKWARD_STACK, False, False, True),
        ),
        collectives=_collectives(world_size, short),
        workers=() if short else workers,
        gpu=rank % per_node,
        still_s=3.1 if not short else 4.3,
        patience_s=120.0,
        last_output=f"[rank{rank}] epoch 0 step 240 loss 0.3182\n",
        phases=_phases(short),
    )


def _phases(short: bool) -> tuple[PhaseSpan, ...]:
    """The last minute before the hang, as looks once a second saw it."""
    cycle = (Phase.DATA, Phase.BACKWARD, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
    seen = [PhaseSpan(HUNG_AT - ago, cycle[-ago % 5], BATCHES - 1 - ago) for ago in range(60, 0, -1)]
    last = Phase.BETWEEN if short else Phase.BACKWARD
    return (*seen, PhaseSpan(HUNG_AT, last, BATCHES - 2 if short else BATCHES - 1))


def _reading(rank: int, world_size: int, short: bool, per_node: int) -> Reading:
    drawn = BATCHES - 1 if short else BATCHES
    issued = 2 * drawn + (1 if short else 0)
    identity = Identity(
        rank=rank,
        world_size=world_size,
        local_rank=rank % per_node,
        host=host_of(rank, per_node),
        pid=4708 + rank,
        started_at=HUNG_AT - 411.0,
        job="vision-7c1e",
        command=f"python -u train.py --data /data/birds (rank {rank})",
        launcher="torchrun",
        torch_version="2.13.0",
        python_version="3.12.11",
        environment={"RANK": str(rank), "WORLD_SIZE": str(world_size), "MASTER_ADDR": "node-a"},
    )
    return Reading(
        identity=identity,
        taken_at=NOTICED_AT,
        phase=Phase.BETWEEN if short else Phase.BACKWARD,
        phase_at=HUNG_AT,
        progress=Progress(
            epoch=0,
            batch=drawn - 1,
            step=drawn - 1,
            optimizer_steps=BATCHES - 1,
            forwards=drawn,
            draws=drawn,
            calls=issued,
            completed=2 * (BATCHES - 1),
            at=HUNG_AT,
        ),
        ticker_at=NOTICED_AT - 0.1,
        heads=_heads(world_size, short),
        steps=tuple(
            StepEntry(step, 0, step, 0, HUNG_AT - (drawn - step) * 1.4, {"0": 2 * step})
            for step in range(max(drawn - 8, 0), drawn)
        ),
        loaders=(_loader(rank, world_size, short, drawn),),
        times=StepTimes(drawn, 41.0, 310.5, 351.4, 1.39, 1.62),
    )


def _loader(rank: int, world_size: int, short: bool, drawn: int) -> LoaderFacts:
    return LoaderFacts(
        index=0,
        length=drawn,
        epoch=0,
        drawn=drawn,
        exhausted=short,
        num_workers=2,
        worker_pids=() if short else (14708 + 10 * rank, 14709 + 10 * rank),
        where=Frame(SCRIPT, 64, "train"),
        dataset="Birds",
        dataset_length=32127,
        batch_size=32,
        sampler="CardSampler",
        sampler_replicas=world_size,
        sampler_rank=rank,
        sampler_length=8031 if short else 8032,
        shuffle=False,
        start_method="fork",
    )


@cache  # ten thousand ranks share one tuple of ten thousand members
def _heads(world_size: int, short: bool) -> tuple[GroupHead, ...]:
    issued = 2 * (BATCHES - 1) + (1 if short else 2)
    members = tuple(range(world_size))
    return (GroupHead("0", members, "default_pg", "gloo", issued, 2 * (BATCHES - 1)),)


@cache
def _collectives(world_size: int, short: bool) -> Collectives:
    first = 2 * (BATCHES - 4) + 1
    steps = [
        Collective(
            "0",
            first + k,
            "all_reduce",
            ((1000, 2048),) if k % 2 == 0 else ((512, 512, 3, 3),),
            ("float32",),
            retired=True,
            frames=BACKWARD_STACK[2:],
            at=HUNG_AT - 5.6 + k * 0.7,
            step=BATCHES - 4 + k // 2,
        )
        for k in range(6)
    ]
    last = 2 * (BATCHES - 1) + 1
    if short:
        ending = [Collective("0", last, "barrier", ((1,),), ("float32",), False, frames=BARRIER_STACK, at=HUNG_AT)]
    else:
        ending = [replace(steps[k], seq=last + k, retired=False, at=HUNG_AT, step=BATCHES - 1) for k in range(2)]
    return Collectives(_heads(world_size, short), (*steps, *ending), (ending[0],), "flight-recorder")


def _process(pid: int, host: str, per_node: int, rank: int, children: tuple[int, ...]) -> ProcessFacts:
    return ProcessFacts(
        pid=pid,
        state="S",
        parent=4700 + rank // per_node,
        started_at=HUNG_AT - 411.0,
        command="python -u train.py --data /data/birds",
        cpu_s=388.2,
        cpu_delta_s=0.01,
        io_delta_bytes=0,
        threads=14,
        resident_bytes=3 * GIB + rank * (1 << 20),
        wait_channel="futex_wait_queue",
        system_call="futex",
        descriptors=61,
        descriptor_limit=1024,
        children=children,
        standard_pipes=(OpenFile(1, "pipe:[88121]"), OpenFile(2, "pipe:[88121]")),
        environment={"RANK": str(rank), "MASTER_ADDR": "node-a", "OMP_NUM_THREADS": "1"},
    )


def _worker(rank: int, parent: int, index: int) -> ProcessEvidence:
    pid = 14708 + 10 * rank + index
    facts = ProcessFacts(pid, "S", parent, HUNG_AT - 400.0, "python -u train.py", 190.0, 0.0, threads=1)
    stack = ThreadStack(pid, "MainThread", WORKER_STACK, main=True)
    return ProcessEvidence("loader-worker", facts, (stack,), rank=rank, worker=index)


def _launcher(first: int, per_node: int) -> ProcessEvidence:
    pid = 4700 + first // per_node
    facts = ProcessFacts(pid, "S", 1, HUNG_AT - 414.0, COMMAND, 2.1, 0.0, threads=3)
    where = Frame(f"{SITE}/distributed/elastic/agent/server/api.py", 900, "_invoke_run")
    return ProcessEvidence("launcher", facts, (ThreadStack(pid, "MainThread", (where,), main=True),))


def _node(first: int, world_size: int, per_node: int) -> NodeFacts:
    ranks = tuple(range(first, min(first + per_node, world_size)))
    gpus = tuple(
        GpuFacts(
            index,
            f"GPU-{rank:08x}-51c2",
            "NVIDIA H200",
            utilization_percent=0,
            power_w=78.0 + index,
            power_limit_w=700.0,
            memory_used=31 * GIB,
            memory_total=141 * GIB,
            temperature_c=41,
            processes={4708 + rank: 31 * GIB - (1 << 28)},
        )
        for index, rank in enumerate(ranks)
    )
    return NodeFacts(
        host_of(first, per_node),
        ranks,
        gpus=gpus,
        shm_total=64 * GIB,
        shm_free=63 * GIB,
        memory_limit=512 * GIB,
        memory_used=41 * GIB,
        oom_kills=0,
        addresses=(f"10.0.{first // per_node // 250}.{first // per_node % 250 + 1}",),
    )


EXAMPLES: dict[str, Callable[[], Incident]] = {
    "uneven-steps": uneven_steps,
    "waiting": waiting,
    "lingering": lingering,
    "undetermined": undetermined,
}
