"""GPU memory: a process that holds some on a GPU that is another rank's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangwatch.model import ForeignMemory, GpuFacts, HealthWarning, NodeFacts, RankEvidence
from hangwatch.words import ranks as named
from hangwatch.words import verb

from .device_lines import suspect_line
from .telling import warning

LEAST = 64 << 20  # bytes; a CUDA context alone is several times this


def device_warnings(nodes: Sequence[NodeFacts], ranks: Sequence[RankEvidence]) -> tuple[HealthWarning, ...]:
    """What the GPUs' memory tells: for each node its first GPU on which other ranks hold memory."""
    found = foreign_memory(nodes, ranks)
    return tuple(
        _told(node, own, ranks) for node in nodes if (own := [each for each in found if each.host == node.host])
    )


def foreign_memory(nodes: Sequence[NodeFacts], ranks: Sequence[RankEvidence]) -> tuple[ForeignMemory, ...]:
    """What ranks hold on GPUs that other ranks are bound to. A model spread over GPUs of its own is no fault."""
    by_host: dict[str, list[RankEvidence]] = {}
    for rank in ranks:
        by_host.setdefault(rank.host, []).append(rank)
    return tuple(each for node in nodes for each in _on(node, by_host.get(node.host, ())))


def _on(node: NodeFacts, ranks: Sequence[RankEvidence]) -> Iterator[ForeignMemory]:
    here = [(rank, own) for rank in ranks if rank.pid is not None and (own := _bound(rank, node)) is not None]
    owners = {own: rank.rank for rank, own in here}
    if len(owners) < len(here):
        return  # ranks share GPUs on purpose, or which is whose is not known
    for gpu in node.gpus:
        for rank, own in here:
            if gpu.index in owners and own != gpu.index and (held := _held(gpu, rank)) > LEAST:
                line = suspect_line(rank) or ""
                yield ForeignMemory(node.host, gpu.index, owners[gpu.index], rank.rank, rank.pid or 0, held, line)


def _bound(rank: RankEvidence, node: NodeFacts) -> int | None:
    """The GPU that a rank is bound to; where no capture has said, the one on which it holds most."""
    if rank.gpu is not None or rank.reading is not None:
        return rank.gpu
    most = max(node.gpus, key=lambda gpu: _held(gpu, rank), default=None)
    return most.index if most is not None and _held(most, rank) else None


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
    cells = [f"{size(held)} on GPU {gpu.index}" for gpu in gpus if (held := _held(gpu, rank))]
    return ", ".join(cells) or "no memory on any GPU"


def _held(gpu: GpuFacts, rank: RankEvidence) -> int:
    return gpu.processes.get(rank.pid or -1, 0)


def size(held: int) -> str:
    """`9.0 GiB`, `512 MiB`."""
    return f"{held / (1 << 30):.1f} GiB" if held >= 1 << 30 else f"{held >> 20} MiB"
