"""What the probe adds to a step: one rank trains with it and without it in turns, in one process.

Two runs differ by more than the probe costs: other machines' loads, clocks, where memory lies. Turns of a few hundred
steps in one process share all that. The watchdog, a process beside the ranks, is not in the figures; torch's flight
recorder is on in all turns, as `hangwatch run` leaves it.

    in_turns.py [--device cpu] [--pairs 10] [--steps 600]      prints one line of JSON
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "agent")]

from hangwatch.settings import Settings  # noqa: E402
from hangwatch_agent.rank import probe  # noqa: E402

READ_EVERY = 5
WARM = 80  # steps before a turn is timed: the probe looks longer at the first ones, and so does torch
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


@dataclass(frozen=True)
class Turn:
    """Microseconds of one step, by the clock and of the training thread's processor time."""

    clock: float
    processor: float


class Training:
    """A small model, whose steps are as short as steps on a device get."""

    def __init__(self, device: str, steps: int) -> None:
        self.device, self.steps = torch.device(device), steps
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)).to(self.device)
        self.model = DistributedDataParallel(layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        count = 8 * (steps + WARM)
        self.data = TensorDataset(torch.randn(count, 64), torch.randn(count, 1))

    def turn(self) -> Turn:
        clock = processor = 0.0
        for step, (inputs, targets) in enumerate(DataLoader(self.data, batch_size=8)):
            if step == WARM:
                self._synchronize()
                clock, processor = time.perf_counter(), time.thread_time()
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(inputs.to(self.device)), targets.to(self.device))
            loss.backward()
            self.optimizer.step()
            if step % READ_EVERY == 0:
                loss.item()
        self._synchronize()
        took, used = time.perf_counter() - clock, time.thread_time() - processor
        return Turn(took / self.steps * 1e6, used / self.steps * 1e6)

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def watched(training: Training) -> Turn:
    """A turn with the probe, as it is in a rank below `hangwatch run`."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        installed = probe.install(Settings.load(), Path(folder), attached_by="run")
        try:
            return training.turn()
        finally:
            installed.remove()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    os.environ |= ALONE | {"TORCH_FR_BUFFER_SIZE": "2000"}
    torch.set_num_threads(1)
    if args.device == "cuda":
        torch.cuda.set_device(0)
    store = dist.HashStore()  # type: ignore[attr-defined]  # torch does not list it
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo", store=store, rank=0, world_size=1)
    training = Training(args.device, args.steps)
    training.turn()
    plain: list[Turn] = []
    with_probe: list[Turn] = []
    for pair in range(args.pairs):
        for is_watched in (True, False) if pair % 2 else (False, True):
            (with_probe if is_watched else plain).append(watched(training) if is_watched else training.turn())
    added = [found.clock - base.clock for found, base in zip(with_probe, plain, strict=True)]
    low, _, high = statistics.quantiles(added, n=4)
    found = {
        "pairs": args.pairs,
        "plain": statistics.median(turn.clock for turn in plain),
        "added": statistics.median(added),
        "added_low": low,
        "added_high": high,
        "added_processor": statistics.median(
            found.processor - base.processor for found, base in zip(with_probe, plain, strict=True)
        ),
    }
    print(json.dumps({name: round(value, 1) for name, value in found.items()}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
