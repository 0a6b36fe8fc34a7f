"""Processes of earlier runs that still hold memory on a GPU of this job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangwatch import words
from hangwatch.model import GpuFacts, HealthWarning, NodeFacts, ProcessEvidence, RankEvidence
from hangwatch.stacks.frames import user_frame

from .gpu_memory import LEAST, size
from .telling import warning

LEFT = ("RANK", "TORCHELASTIC_RUN_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")  # it was a rank of some run
STATES = {"Z": "has ended and was not collected", "D": "sleeps uninterruptibly", "T": "is stopped"}
INIT = 1  # pid of the process that adopts those whose parent has ended


def leftover_processes(
    nodes: Sequence[NodeFacts], ranks: Sequence[RankEvidence], others: Sequence[ProcessEvidence]
) -> tuple[HealthWarning, ...]:
    """A warning for each machine on which there are such processes.

    A process beside the job may be there on purpose: it counts only where it was a rank whose launcher is gone, or can
    make no use of the memory in its state.
    """
    return tuple(
        found for node in nodes if (found := _on(node, [rank for rank in ranks if rank.host == node.host], others))
    )


def _on(node: NodeFacts, here: list[RankEvidence], others: Sequence[ProcessEvidence]) -> HealthWarning | None:
    owners = {rank.gpu: rank.rank for rank in here if rank.gpu is not None}
    left = [each for each in others if _why(each)]
    holding = [
        (each, gpu, gpu.processes[each.facts.pid])
        for gpu in node.gpus
        if gpu.index in owners
        for each in left
        if gpu.processes.get(each.facts.pid, 0) > LEAST
    ]
    if not holding:
        return None
    process, gpu, held = max(holding, key=lambda item: item[2])
    whose = f"rank {owners[gpu.index]}'s"
    summary = (
        f"Process {process.facts.pid} holds {size(held)} on GPU {gpu.index} of {node.host}, which is {whose},"
        f" and is no part of the job: {_why(process)}"
    )
    readings = {rank.rank: rank.reading for rank in here if rank.reading is not None}
    about = [owners[each.index] for _, each, _ in holding]
    return warning("gpu-leftover-process", summary, readings, about=set(about), evidence=list(_rows(holding)))


def _why(process: ProcessEvidence) -> str:
    """Why it counts as left behind; "" where it may be there on purpose."""
    facts = process.facts
    if facts.state in STATES and not facts.cpu_delta_s:  # else it is in that state for a moment
        return f"it {STATES[facts.state]} (state {facts.state})"
    if process.role == "orphan":
        return "it belonged to an attempt that is over, and its launcher is gone"
    if process.role == "stranger" and facts.parent == INIT and any(name in facts.environment for name in LEFT):
        rank = facts.environment.get("RANK")
        return f"it was {f'rank {rank}' if rank else 'a rank'} of another run, whose launcher is gone"
    return ""


def _rows(holding: Sequence[tuple[ProcessEvidence, GpuFacts, int]]) -> Iterator[str]:
    for process, gpu, held in holding[:8]:
        frames = next((stack.frames for stack in process.stacks if stack.main), ())
        where = user_frame(frames)
        at = f", at {words.place(where)}" if where is not None else ""
        yield f"pid {process.facts.pid} ({words.command(process.facts.command)}){at}: {size(held)} on GPU {gpu.index}"
