"""A smoke run of a few batches, over ranks whose shares of the data differ in length.

The run ends long before the epoch does, so nothing goes wrong yet: the real training would hang at the end of
its first epoch, hours later. With --healthy every rank has the same number of batches.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def share(rank: int, world_size: int, even: bool) -> TensorDataset:
    """This rank's part of the data: 3,000 samples, and the last rank takes what is left over."""
    size = 3_000 if even or rank < world_size - 1 else 3_007
    inputs = torch.randn(size, 64)
    return TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120, help="batches of the smoke run")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    loader = DataLoader(share(rank, world_size, even=args.healthy), batch_size=5, shuffle=True)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    for batch, (inputs, targets) in enumerate(loader):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if batch == args.steps:
            break

    if rank == 0:
        print("smoke run passed", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
