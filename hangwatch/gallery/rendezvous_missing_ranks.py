"""The ranks are started by hand, and one of them was forgotten: WORLD_SIZE says more than there are.

All others wait in init_process_group. With --healthy that rank is there, but unpacks its data for some
seconds before it joins.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unpack(seconds: float) -> torch.Tensor:
    time.sleep(seconds)
    return torch.randn(640, 64)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    late = args.healthy and int(os.environ["RANK"]) == args.culprit
    data = unpack(6.0 if late else 0.1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(64, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in data.split(8):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.barrier()
    print(f"rank {rank} done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
