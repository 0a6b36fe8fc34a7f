"""The scheduler announces preemption with SIGUSR1; the handler writes the metrics out, under their lock.

On one rank the signal arrives while the main thread holds that very lock. The handler runs above the frame it
has interrupted, and that frame can never release the lock. The others wait in backward. With --healthy the
lock may be taken twice by one thread.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Metrics:
    def __init__(self, lock: threading.Lock | threading.RLock) -> None:
        self.lock = lock
        self.values: list[float] = []

    def record(self, value: float, notice: bool) -> None:
        with self.lock:
            self.values.append(value)
            if notice:
                os.kill(os.getpid(), signal.SIGUSR1)

    def write(self, number: int, frame: FrameType | None) -> None:
        with self.lock:
            print(f"signal {number}: {len(self.values)} values", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fault-step", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    metrics = Metrics(threading.RLock() if args.healthy else threading.Lock())
    signal.signal(signal.SIGUSR1, metrics.write)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 3072), nn.ReLU(), nn.Linear(3072, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for step in range(args.steps):
        loss = model(torch.randn(32, 128)).square().mean()
        optimizer.zero_grad()
        metrics.record(loss.item(), notice=rank == args.culprit and step == args.fault_step)
        loss.backward()
        optimizer.step()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
