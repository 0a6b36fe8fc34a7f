"""Who holds memory on which GPU, and what ranks hold on GPUs of other ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangwatch.model import ForeignMemory, GpuFacts, NodeFacts, RankEvidence

from .device_lines import suspect_line

LEAST = 64 << 20  # bytes; a CUDA context alone is several times this


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
            if gpu.index in owners and own != gpu.index and (held := held_by(gpu, rank)) > LEAST:
                line = suspect_line(rank) or ""
                yield ForeignMemory(node.host, gpu.index, owners[gpu.index], rank.rank, rank.pid or 0, held, line)


def _bound(rank: RankEvidence, node: NodeFacts) -> int | None:
    """The GPU that a rank is bound to; where no capture has said, the one on which it holds most."""
    if rank.gpu is not None or rank.reading is not None:
        return rank.gpu
    most = max(node.gpus, key=lambda gpu: held_by(gpu, rank), default=None)
    return most.index if most is not None and held_by(most, rank) else None


def held_by(gpu: GpuFacts, rank: RankEvidence) -> int:
    return gpu.processes.get(rank.pid or -1, 0)


def size(held: int) -> str:
    """`9.0 GiB`, `512 MiB`."""
    return f"{held / (1 << 30):.1f} GiB" if held >= 1 << 30 else f"{held >> 20} MiB"
