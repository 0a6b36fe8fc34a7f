"""Gradients are accumulated under no_sync over a number of batches that follows from the rank's batch size.

One rank has a smaller batch and accumulates more batches per step, so it synchronises less often over the
same number of batches. The others run ahead in numbers and wait for its next all_reduce; at the end it has
none left. With --healthy every rank accumulates the same number, and only the batch sizes differ.
"""

from __future__ import annotations

import argparse
import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)

    batch_size = 8 if rank == args.culprit else 16
    effective = 32
    accumulate = 2 if args.healthy else effective // batch_size
    size = args.steps * batch_size
    dataset = TensorDataset(torch.randn(size, 128), torch.randn(size, 1))
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 3072), nn.SiLU(), nn.Linear(3072, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)

    for batch, (inputs, targets) in enumerate(loader):
        last = (batch + 1) % accumulate == 0
        with contextlib.nullcontext() if last else model.no_sync():
            loss = nn.functional.smooth_l1_loss(model(inputs), targets)
            (loss / accumulate).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
