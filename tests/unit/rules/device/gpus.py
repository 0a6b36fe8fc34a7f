"""GPUs and nodes as NVML tells of them; the figures stand in for a machine that has some."""

from __future__ import annotations

from typing import Any

from hangwatch.model import GpuFacts, GroupHead, RankEvidence
from tests.unit.job import IN_BACKWARD, IN_ITEM, rank

SPINNING = {"utilization_percent": 100, "power_w": 130.0, "power_limit_w": 700.0}
IDLE = {"utilization_percent": 0, "power_w": 90.0, "power_limit_w": 700.0}


def gpu(index: int, **figures: Any) -> GpuFacts:
    return GpuFacts(index, f"GPU-{index}", "NVIDIA H200", **figures)


def node(*gpus: GpuFacts) -> dict[str, Any]:
    return {"gpus": gpus}


def on(number: int, device: int | None = None, stack: Any = IN_ITEM, **parts: Any) -> RankEvidence:
    evidence = {"gpu": number if device is None else device, **parts.pop("evidence", {})}
    return rank(number, stack, evidence=evidence, **parts)


def in_first_collective(number: int, device: int | None = None) -> RankEvidence:
    made = on(number, device, IN_BACKWARD)
    heads = (GroupHead("0", (0, 1), "", "nccl", 1, -1),)
    return type(made)(**{**vars(made), "collectives": type(made.collectives)(heads)})
