"""One rank is told to use another network interface than the others, as by the profile of one machine of two.

Here both interfaces are the loopback device, so the job runs; in a cluster it may be slow, or not connect. With
--healthy all ranks have the same settings.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def read_profile(rank: int, odd_one: int | None) -> None:
    """What a machine's profile sets for its users."""
    if rank == odd_one:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    read_profile(int(os.environ["RANK"]), None if args.healthy else args.culprit)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(args.steps):
        optimizer.zero_grad()
        model(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
        time.sleep(0.02)

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
