"""GPU memory: a process that holds some on a GPU that is another rank's."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.model import ForeignMemory, GpuFacts, HealthWarning, NodeFacts, RankEvidence
from hangwatch.words import ranks as named
from hangwatch.words import verb

from .gpu_memory import foreign_memory, held_by, size
from .telling import warning


def device_warnings(nodes: Sequence[NodeFacts], ranks: Sequence[RankEvidence]) -> tuple[HealthWarning, ...]:
    """What the GPUs' memory tells: for each node its first GPU on which other ranks hold memory."""
    found = foreign_memory(nodes, ranks)
    return tuple(
        _told(node, own, ranks) for node in nodes if (own := [each for each in found if each.host == node.host])
    )


def _told(node: NodeFacts, found: list[ForeignMemory], ranks: Sequence[RankEvidence]) -> HealthWarning:
    first = [each for each in found if each.gpu == found[0].gpu]
    holding = [each.rank for each in first]
    summary = (
        f"{named(holding, capital=True)} {verb(len(holding), 'holds', 'hold')}"
        f" {size(sum(each.bytes_held for each in first))}"
        f" on GPU {first[0].gpu}{f' of {node.host}' if node.host else ''}, which is rank {first[0].owner}'s"
        f"{next((f': {each.line}' for each in first if each.line), '')}"
    )
    here = [rank for rank in ranks if rank.host == node.host and rank.pid is not None]
    readings = {rank.rank: rank.reading for rank in here if rank.reading is not None}
    matrix = [f"rank {rank.rank} (pid {rank.pid}): {_row(rank, node.gpus)}" for rank in here[:16]]
    return warning("gpu-memory-imbalance", summary, readings, about=holding, evidence=matrix)


def _row(rank: RankEvidence, gpus: Sequence[GpuFacts]) -> str:
    """One line of the matrix of processes and GPUs."""
    cells = [f"{size(held)} on GPU {gpu.index}" for gpu in gpus if (held := held_by(gpu, rank))]
    return ", ".join(cells) or "no memory on any GPU"
