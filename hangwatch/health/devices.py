"""GPU memory: a process that holds some on a GPU that is another rank's."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.model import GpuFacts, HealthWarning, NodeFacts, RankEvidence
from hangwatch.words import ranks as named
from hangwatch.words import verb

from .telling import warning

LEAST = 64 << 20  # bytes; a CUDA context alone is several times this


def device_warnings(nodes: Sequence[NodeFacts], ranks: Sequence[RankEvidence]) -> tuple[HealthWarning, ...]:
    """What the GPUs' memory tells at the time of a capture."""
    return tuple(found for node in nodes if (found := _imbalance(node, ranks)) is not None)


def _imbalance(node: NodeFacts, ranks: Sequence[RankEvidence]) -> HealthWarning | None:
    """Ranks hold memory on a GPU that another rank is bound to. A model spread over GPUs of its own is no fault."""
    here = [rank for rank in ranks if rank.host == node.host and rank.pid is not None and rank.gpu is not None]
    owners = {rank.gpu: rank.rank for rank in here}
    if len(owners) < len(here):
        return None  # ranks share GPUs on purpose, or which is whose is not known
    for gpu in node.gpus:
        strangers = [
            rank for rank in here if gpu.index in owners and rank.gpu != gpu.index and _held(gpu, rank) > LEAST
        ]
        if strangers:
            return _told(gpu, owners[gpu.index], strangers, here, node)
    return None


def _told(
    gpu: GpuFacts, owner: int, strangers: list[RankEvidence], here: list[RankEvidence], node: NodeFacts
) -> HealthWarning:
    held = sum(_held(gpu, rank) for rank in strangers)
    who = [rank.rank for rank in strangers]
    summary = (
        f"{named(who, capital=True)} {verb(len(who), 'holds', 'hold')} {size(held)} on GPU {gpu.index}"
        f"{f' of {node.host}' if node.host else ''}, which is rank {owner}'s"
    )
    readings = {rank.rank: rank.reading for rank in here if rank.reading is not None}
    matrix = [f"rank {rank.rank} (pid {rank.pid}): {_row(rank, node.gpus)}" for rank in here[:16]]
    return warning("gpu-memory-imbalance", summary, readings, about=who, evidence=matrix)


def _row(rank: RankEvidence, gpus: Sequence[GpuFacts]) -> str:
    """One line of the matrix of processes and GPUs."""
    cells = [f"{size(held)} on GPU {gpu.index}" for gpu in gpus if (held := _held(gpu, rank))]
    return ", ".join(cells) or "no memory on any GPU"


def _held(gpu: GpuFacts, rank: RankEvidence) -> int:
    return gpu.processes.get(rank.pid or -1, 0)


def size(held: int) -> str:
    """`9.0 GiB`, `512 MiB`."""
    return f"{held / (1 << 30):.1f} GiB" if held >= 1 << 30 else f"{held >> 20} MiB"
