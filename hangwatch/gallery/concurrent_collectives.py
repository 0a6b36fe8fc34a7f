"""A background thread gathers the ranks' throughput while the main thread trains, both in the default group.

On one rank the thread comes first, on the others the main thread does, so the same numbers stand for
different operations and neither can finish. With --healthy the thread has a group of its own.
"""

from __future__ import annotations

import argparse
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gather_throughput(steps: int, seconds: float, group: dist.ProcessGroup | None, delay: float) -> None:
    time.sleep(delay)
    rates: list[float] = [0.0] * dist.get_world_size()
    dist.all_gather_object(rates, steps / seconds, group=group)
    if dist.get_rank() == 0:
        print("steps per second:", [round(rate) for rate in rates], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1, help="the rank whose thread comes first")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=80)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = dist.new_group() if args.healthy else None
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 3072), nn.ReLU(), nn.Linear(3072, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    started = time.monotonic()

    for step in range(args.steps):
        loss = model(torch.randn(32, 128)).square().mean()
        if step == args.fault_step:
            seconds = time.monotonic() - started
            delay = 0.0 if rank == args.culprit else 0.5
            meter = threading.Thread(
                target=gather_throughput, args=(step, seconds, group, delay), name="throughput", daemon=True
            )
            meter.start()
            if rank == args.culprit:
                time.sleep(0.3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    meter.join()
    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
