"""What NVML says of the GPUs of ranks that wait for them, or for each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hangwatch.facts.case import Case
from hangwatch.model import GpuFacts, NodeFacts
from hangwatch.ranks.view import RankView

BUSY_PERCENT = 90  # a GPU that spins in a kernel says that it is fully used
LOW_POWER = 0.5  # of its limit: it spins, and computes nothing


@dataclass(frozen=True)
class Bound:
    """A rank and the GPU that it is bound to."""

    view: RankView
    node: NodeFacts
    gpu: GpuFacts

    @property
    def spins(self) -> bool:
        """Fully used at low power: a kernel that waits."""
        gpu = self.gpu
        if gpu.utilization_percent is None or gpu.power_w is None or not gpu.power_limit_w:
            return False
        return gpu.utilization_percent >= BUSY_PERCENT and gpu.power_w < LOW_POWER * gpu.power_limit_w

    @property
    def figures(self) -> str:
        gpu = self.gpu
        power = f" at {gpu.power_w:.0f} of {gpu.power_limit_w:.0f} W" if gpu.power_w and gpu.power_limit_w else ""
        return f"GPU {gpu.index} of {self.node.host} (rank {self.view.rank}) is {gpu.utilization_percent} % used{power}"


def bound(case: Case) -> Iterator[Bound]:
    """The living ranks whose GPU is known."""
    nodes = {node.host: node for node in case.snapshot.nodes}
    for view in case:
        node = nodes.get(view.evidence.host)
        if node is None or view.dead or view.evidence.gpu is None:
            continue
        gpu = next((gpu for gpu in node.gpus if gpu.index == view.evidence.gpu), None)
        if gpu is not None:
            yield Bound(view, node, gpu)


def all_have_come(case: Case) -> bool:
    """Of each rank that waits in a collective it is known in which, and that no other rank is absent from it."""
    return all(entry.need is None and entry.group is not None for entry in case.blocked.values())


def nothing_completed(case: Case) -> bool:
    heads = [head for view in case for head in view.evidence.collectives.heads]
    return bool(heads) and all(head.completed <= 0 for head in heads)
