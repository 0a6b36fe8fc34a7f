"""The devices: what NVML says of the GPUs of ranks that wait for them, or for each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..activity import Doing
from ..records import Certainty, GpuFacts, NodeFacts, Status
from . import words
from .case import Case, RankView
from .finding import Finding, Rule

BUSY_PERCENT = 90  # a GPU that spins in a kernel says that it is fully used
LOW_POWER = 0.5  # of its limit: it spins, and computes nothing
DUPLICATE = re.compile(r"duplicate gpu detected", re.IGNORECASE)
LOST = re.compile(r"gpu is lost|xid|fallen off|uncorrect|ecc|device-side|unspecified launch failure", re.IGNORECASE)


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


def gpu_fault(case: Case) -> Finding | None:
    """The driver reports an error of a GPU."""
    faulty = [(node, gpu) for node in case.snapshot.nodes for gpu in node.gpus if gpu.errors]
    if not faulty or not (case.blocked or any(view.main.doing is Doing.DEVICE or view.dead for view in case)):
        return None
    node, gpu = faulty[0]
    ranks = [each.view for each in bound(case) if (each.node, each.gpu) in faulty]
    serial = f", serial number {gpu.serial}" if gpu.serial else ""
    whose = f" It belongs to {words.ranks(view.rank for view in ranks)}." if ranks else ""
    return Finding(
        "gpu-fault",
        Certainty.PROVEN if any(LOST.search(error) for error in gpu.errors) else Certainty.LIKELY,
        f"GPU {gpu.index} of {node.host} ({gpu.name}{serial}) has failed: {gpu.errors[0]}.{whose}",
        fix=f"drain {node.host} and reset or replace GPU {gpu.index}{serial}",
        culprits=tuple(view.culprit() for view in ranks),
        evidence=tuple(f"GPU {gpu.index} of {node.host}: {error}" for node, gpu in faulty for error in gpu.errors[:4]),
        status=Status.HUNG,
    )


def duplicate_gpu(case: Case) -> Finding | None:
    """Two ranks of one machine are bound to one GPU, and NCCL refuses that."""
    sharing: dict[tuple[str, int], list[RankView]] = {}
    for view in case:
        if view.evidence.gpu is not None:
            sharing.setdefault((view.evidence.host, view.evidence.gpu), []).append(view)
    shared = [(place, views) for place, views in sharing.items() if len(views) > 1]
    refused = [view for view in case if DUPLICATE.search(_error(view))]
    nccl = any(head.backend == "nccl" for view in case for head in view.evidence.collectives.heads)
    if not refused and not (shared and nccl and case.blocked and _nothing_completed(case)):
        return None
    ranks = sorted({view.rank for view in (shared[0][1] if shared else refused)})
    where = f"GPU {shared[0][0][1]} of {shared[0][0][0]}" if shared else "one GPU"
    return Finding(
        "duplicate-gpu",
        Certainty.PROVEN if refused else Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} are bound to {where}, and NCCL wants one GPU for each rank.",
        culprits=tuple(case.ranks[rank].culprit() for rank in ranks),
        evidence=(
            *(f"rank {view.rank} raised: {_error(view).splitlines()[0][:160]}" for view in refused[: words.SHOWN]),
            *(f"{words.ranks(view.rank for view in views)}: GPU {gpu} of {host}" for (host, gpu), views in shared),
        ),
        status=Status.FAILED if refused else None,
        awaited=tuple(ranks),
    )


def interconnect_stall(case: Case) -> Finding | None:
    """Every GPU spins in the first collective, and none completes it."""
    gpus = list(bound(case))
    if (
        len(gpus) < 2
        or not all(each.spins for each in gpus)
        or not _all_have_come(case)
        or not _nothing_completed(case)
    ):
        return None
    return Finding(
        "interconnect-stall",
        Certainty.LIKELY,
        f"All {len(gpus)} GPUs are fully used at low power in the first collective, and none completes it: they do not"
        " reach each other.",
        victims=tuple(each.view.rank for each in gpus),
        evidence=tuple(each.figures for each in gpus[: words.SHOWN]),
        awaited=tuple(each.view.rank for each in gpus),
    )


def device_stall(case: Case) -> Finding | None:
    """Ranks wait for their devices, and one device spins while the others are done."""
    waiting = [view for view in case if view.main.doing is Doing.DEVICE]
    gpus = list(bound(case))
    spinning = [each for each in gpus if each.spins]
    if not waiting or not gpus or not _all_have_come(case):
        return None
    few = spinning if len(spinning) * 2 < len(gpus) or len(gpus) == 1 else []
    ranks = [each.view.rank for each in few]
    first = waiting[0]
    if few:
        head = f"The GPU of {case.name(ranks)} does not finish: it is fully used at low power"
    else:
        head = "The devices do not finish what the ranks wait for"
    return Finding(
        "device-stall",
        Certainty.LIKELY if few else Certainty.UNDETERMINED,
        f"{head}; {case.wait_words(view.rank for view in waiting)} in {first.now.op or 'a device call'}"
        f"{words.at(first.where)}.",
        culprits=tuple(each.view.culprit() for each in few),
        victims=tuple(view.rank for view in waiting if view.rank not in ranks),
        step=first.step,
        evidence=tuple(each.figures for each in (few or gpus)[: words.SHOWN]),
        awaited=tuple(view.rank for view in waiting),
    )


def _all_have_come(case: Case) -> bool:
    """Nobody is known to be absent from a collective in which somebody waits."""
    return all(entry.need is None for entry in case.blocked.values())


def _nothing_completed(case: Case) -> bool:
    heads = [head for view in case for head in view.evidence.collectives.heads]
    return bool(heads) and all(head.completed <= 0 for head in heads)


def _error(view: RankView) -> str:
    exception = view.exception
    return f"{exception.type}: {exception.message}" if exception is not None else ""


RULES: tuple[Rule, ...] = (gpu_fault, duplicate_gpu, interconnect_stall, device_stall)
