"""A sampler made from the configuration's rank and number of GPUs, which are another run's.

All ranks draw the first share of the data and none draws the rest. With --healthy the sampler asks the
process group.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CONFIG = {"gpus": 2, "rank": 0}  # written when there was one process with two GPUs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    inputs = torch.randn(800, 64)
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    replicas, part = (None, None) if args.healthy else (CONFIG["gpus"], CONFIG["rank"])
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset, replicas, part)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
