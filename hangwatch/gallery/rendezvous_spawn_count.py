"""mp.spawn starts fewer processes than world_size says, because the two numbers come from different places.

The last rank never exists and the others wait for it in init_process_group. With --healthy the numbers are
the same, and rank 0 unpacks its data before it joins, for longer than ranks are given to come; until then no
process listens where the others try to connect.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unpack(parts: int) -> None:
    for _ in range(parts):
        time.sleep(5.0)


def worker(rank: int, world_size: int, port: int, parts: int) -> None:
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    if rank == 0:
        unpack(parts)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DistributedDataParallel(nn.Linear(64, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2, help="world size")
    parser.add_argument("--port", type=int, default=29506)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    visible_devices = args.ranks if args.healthy else args.ranks - 1
    parts = 8 if args.healthy else 0
    mp.spawn(worker, args=(args.ranks, args.port, parts), nprocs=visible_devices)
    print("done", flush=True)


if __name__ == "__main__":
    main()
