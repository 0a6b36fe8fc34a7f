"""The GPUs of a rank's host, through NVML, and whether torch can compute on this rank's own."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from hangwatch.launchers import number
from hangwatch.model import GpuFacts
from hangwatch_agent.capture import gpu
from hangwatch_agent.doctor import fabric
from hangwatch_agent.doctor.saying import facts, stage
from hangwatch_agent.shared import redact

NVML_S = 6.0


def main() -> None:
    with stage("nvml"):
        reader = gpu.Gpus(timeout_s=NVML_S)
        found, note = reader.read()
        facts(gpus=found, gpu_note="" if note.ok else note.detail, gpu_strangers=holders(found))
    if not found:
        return
    with stage("fabric"):
        facts(fabric=fabric.read(reader._library))
    with stage("cuda"):
        facts(**compute(number(os.environ, "LOCAL_RANK") or 0))


def holders(found: tuple[GpuFacts, ...], proc: Path = Path("/proc")) -> dict[str, str]:
    """The command of each process that holds GPU memory; "" for one that we cannot see, as in another container."""
    commands = {}
    for pid in {pid for each in found for pid in each.processes}:
        commands[str(pid)] = ""
        with contextlib.suppress(OSError):
            words = (proc / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            commands[str(pid)] = redact.redact_command(words).strip()[:120]
    return commands


def compute(local_rank: int) -> dict[str, Any]:
    """Allocate and add on the GPU that torch gives this rank. Its errors are told as they are."""
    import torch

    if not torch.cuda.is_available():
        return {"gpu_problem": "this torch cannot use CUDA here: torch.cuda.is_available() is False"}
    if local_rank >= torch.cuda.device_count():
        return {"gpu_problem": f"LOCAL_RANK is {local_rank}, but torch sees {torch.cuda.device_count()} GPUs"}
    torch.cuda.set_device(local_rank)
    uuid = f"GPU-{getattr(torch.cuda.get_device_properties(local_rank), 'uuid', '')}"
    facts(gpu_used=uuid)
    total = torch.ones(1024, device="cuda").sum().item()
    return {"gpu_used": uuid, "gpu_problem": "" if total == 1024 else f"adding 1024 ones gave {total}"}
