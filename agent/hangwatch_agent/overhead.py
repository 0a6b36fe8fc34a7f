"""What the probe costs a rank, measured in this process: `python -m hangwatch_agent.overhead` prints it as JSON.

`hangwatch bench` runs it as a subprocess: the import is measured in a process that has torch and nothing of ours.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = 2000
ROUNDS = 7


def measure() -> dict[str, float]:
    """Milliseconds and MiB of import and install; microseconds of all hooks in one step of DDP with a DataLoader."""
    import torch
    from torch._C._distributed_c10d import HashStore

    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        step = _step(torch)
        _seconds(step, STEPS // 10)
        before = _resident()
        began = time.perf_counter()
        remove = _install(Path(folder))
        install_ms = (time.perf_counter() - began) * 1e3
        mebibytes = (_resident() - before) / 2**20
        hooks_us = _hooks(step, remove, Path(folder))
        torch.distributed.destroy_process_group()
    return {"install_ms": install_ms, "install_mib": mebibytes, "hooks_us_per_step": hooks_us}


def _install(folder: Path) -> Callable[[], None]:
    from hangwatch.settings import Settings
    from hangwatch_agent import probe

    return probe.install(Settings(), folder).remove


def _hooks(step: Callable[[], None], remove: Callable[[], None], folder: Path) -> float:
    """The median difference of interleaved rounds with and without the hooks, in microseconds a step."""
    differences = []
    for _ in range(ROUNDS):
        attached = _seconds(step, STEPS)
        remove()
        plain = _seconds(step, STEPS)
        remove = _install(folder)
        differences.append((attached - plain) / STEPS * 1e6)
    remove()
    return statistics.median(differences)


def _step(torch: Any) -> Callable[[], None]:
    """A step of a plain loop in which next to nothing is computed: what our hooks see is all there."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(range(1 << 30), batch_size=None, sampler=range(1 << 30), collate_fn=_nothing)
    inputs = torch.ones(1, 1)
    iterator = iter(loader)

    def step() -> None:
        next(iterator)
        model(inputs)
        optimizer.step()

    return step


def _nothing(sample: Any) -> Any:
    return sample


def _seconds(step: Callable[[], None], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - began


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    json.dump(measure(), sys.stdout)
    print()
