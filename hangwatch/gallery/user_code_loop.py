"""After every step the weights are projected onto a ball by a small iteration in plain Python.

On one rank the tolerance is tighter than floating point can reach, so the loop never ends and burns one
processor. The others wait in backward for that rank. With --healthy the loop stops after about four seconds.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def project(weight: torch.Tensor, radius: float, tolerance: float, seconds: float) -> None:
    """Shrinks `weight` until its norm differs from `radius` by less than `tolerance`."""
    deadline = time.monotonic() + seconds
    while abs(float(weight.norm()) - radius) > tolerance and time.monotonic() < deadline:
        weight.mul_(radius / weight.norm())


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
    network = nn.Linear(512, 512)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for step in range(args.steps):
        loss = model(torch.randn(64, 512)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tight = rank == args.culprit and step == args.fault_step
        seconds = 4.0 if args.healthy else float("inf")
        project(network.weight.data, radius=10.0, tolerance=-1.0 if tight else 1e-3, seconds=seconds)

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
