"""What the probe costs a rank, measured in this process: `python -m hangwatch_agent.overhead.hooks` prints it as JSON.

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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hangwatch_agent.rank.probe import Probe

COUNT = 300
ROUNDS = 61


def measure() -> dict[str, float]:
    """Milliseconds and MiB of import and install; microseconds that our hooks add to one step, part by part.

    Each part (a batch, a forward, a backward, an optimizer step) is measured in a loop of its own, by thread time,
    hooked and not hooked in turn. In between the parts of a real step caches grow cold, and the hooks take up to twice
    as long.
    """
    import torch
    from torch._C._distributed_c10d import HashStore

    torch.set_num_threads(1)
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        parts = _parts(torch)
        for body in parts.values():
            _seconds(body)
        before, began = _resident(), time.perf_counter()
        installed = _install(Path(folder))
        found = {"install_ms": (time.perf_counter() - began) * 1e3, "install_mib": (_resident() - before) / 2**20}
        hooks = {
            "batch": installed.loader,
            "forward": installed.forwards,
            "backward": installed.backward,
            "optimizer": installed.optimizer,
        }
        found |= {f"{name}_us": _added(parts[name], hook) for name, hook in hooks.items()}
        installed.remove()
        torch.distributed.destroy_process_group()
    return found | {"hooks_us_per_step": sum(found[f"{name}_us"] for name in hooks)}


def _install(folder: Path) -> Probe:
    from hangwatch.settings import Settings
    from hangwatch_agent.rank import probe

    return probe.install(Settings(), folder)


def _added(body: Callable[[], object], hook: Any) -> float:
    """The median difference of interleaved rounds with and without a hook, in microseconds."""
    differences = []
    for _ in range(ROUNDS):
        hooked = _seconds(body)
        hook.remove()
        plain = _seconds(body)
        hook.install()
        differences.append((hooked - plain) / COUNT * 1e6)
    return statistics.median(differences)


def _parts(torch: Any) -> dict[str, Callable[[], object]]:
    """The parts of a plain step in which next to nothing is computed."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(range(1 << 30), batch_size=None, sampler=range(1 << 30), collate_fn=_nothing)
    inputs, iterator, loss = torch.ones(1, 1), iter(loader), torch.ones(1, requires_grad=True) * 1
    return {
        "batch": lambda: next(iterator),
        "forward": lambda: model(inputs),
        "backward": lambda: loss.backward(retain_graph=True),
        "optimizer": optimizer.step,
    }


def _nothing(sample: Any) -> Any:
    return sample


def _seconds(body: Callable[[], object]) -> float:
    began = time.thread_time()  # what else runs on the machine does not count
    for _ in range(COUNT):
        body()
    return time.thread_time() - began


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    json.dump(measure(), sys.stdout)
    print()
