"""A sampler that was written to draw the rare samples more often, and forgets that there are several ranks.

Every rank draws all samples, in the same order, for the seed is the same as well: N GPUs do the work of one,
N times. With --healthy each rank draws every N-th of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, TensorDataset


class BalancedSampler(Sampler[int]):
    """Draws as many samples as there are, in an order that mixes the classes."""

    def __init__(self, size: int, rank: int, replicas: int) -> None:
        self.size, self.rank, self.replicas = size, rank, replicas
        self.generator = torch.Generator().manual_seed(0)

    def __iter__(self) -> Iterator[int]:
        order: list[int] = torch.randperm(self.size, generator=self.generator).tolist()
        return iter(order[self.rank :: self.replicas])

    def __len__(self) -> int:
        return len(range(self.rank, self.size, self.replicas))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    inputs = torch.randn(800, 64)
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    sampler = BalancedSampler(len(dataset), *((rank, world_size) if args.healthy else (0, 1)))
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    for epoch in range(args.epochs):
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
