"""Ranks of a healthy job as their boards tell of them, to be changed in one thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangwatch.health import HealthWatch
from hangwatch.model import (
    Frame,
    GpuFacts,
    GroupHead,
    HealthWarning,
    Identity,
    LoaderFacts,
    NodeFacts,
    Progress,
    RankEvidence,
    Reading,
    StepEntry,
    StepTimes,
)

LOOP = Frame("/home/ann/train.py", 40, "main")
GIB = 1 << 30


def loader(length: int | None = 100, **parts: Any) -> LoaderFacts:
    """A training loader in its first epoch."""
    given: dict[str, Any] = {"epoch": 0, "drawn": 3, "where": LOOP, "dataset": "Images", "dataset_length": 800}
    return LoaderFacts(index=0, length=length, **(given | parts))


def distributed(rank: int, **parts: Any) -> LoaderFacts:
    """The same over DistributedSampler of two replicas."""
    given: dict[str, Any] = {
        "sampler": "DistributedSampler",
        "sampler_replicas": 2,
        "sampler_length": 400,
        "shuffle": True,
    }
    return loader(**(given | {"sampler_rank": rank} | parts))


def reading(
    rank: int,
    *loaders: LoaderFacts,
    world: int = 2,
    environment: dict[str, str] | None = None,
    backend: str = "gloo",
    **parts: Any,
) -> Reading:
    """A rank in step 2 of its first epoch, with three collectives a step."""
    identity = Identity(rank, world, rank, "node-a", 100 + rank, 1.0, "job", environment=environment or {})
    ledger = tuple(StepEntry(step, 0, step, 0, step * 1.0, {"0": step * 3}) for step in range(3))
    given: dict[str, Any] = {
        "heads": (GroupHead("0", tuple(range(world)), backend=backend),),
        "steps": ledger,
        "progress": Progress(epoch=0, batch=2, step=2),
    }
    return Reading(identity, taken_at=50.0, loaders=loaders, **(given | parts))


def kinds(found: tuple[HealthWarning, ...]) -> list[str]:
    return [each.kind for each in found]


def paced(rank: int, steps: int, data: float, before: float, **parts: Any) -> Reading:
    """A rank after so many steps of 100 ms, with its times a step."""
    times = StepTimes(steps=steps, data_s=steps * data, before_sync_s=steps * before, total_s=steps * 0.1)
    return replace(reading(rank, **parts), times=times, taken_at=1000 + steps * 0.1)


def watched(*costs: tuple[float, float], windows: int = 2, **parts: Any) -> tuple[HealthWarning, ...]:
    """What is told of ranks with these costs a step (data, before the first collective), in so many windows."""
    watch = HealthWatch()
    told: list[HealthWarning] = []
    for steps in range(10, 11 + 60 * windows, 60):
        told += watch([paced(rank, steps, *cost, **parts) for rank, cost in enumerate(costs)])
    return tuple(told)


def evidence(rank: int, gpu: int | None) -> RankEvidence:
    return RankEvidence(rank, "node-a", 100 + rank, reading=reading(rank), gpu=gpu)


def gpus(*processes: dict[int, int]) -> NodeFacts:
    found = tuple(GpuFacts(index, f"GPU-{index}", "H200", processes=each) for index, each in enumerate(processes))
    return NodeFacts("node-a", gpus=found)
