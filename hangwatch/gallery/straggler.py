"""One rank needs longer for its forward than the others, which wait for its gradients in every step.

It is told to compute on more than its share, as a rank does whose processor is busy with something else or
runs hot. With --healthy all ranks are equally fast.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Model(nn.Module):
    """A small model that takes `delay` seconds longer than it should."""

    def __init__(self, delay: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        self.delay = delay

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(self.delay)
        output: torch.Tensor = self.layers(inputs)
        return output


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    inputs = torch.randn(80 * 16 * world_size, 64)
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    slow = rank == args.culprit and not args.healthy
    model = DistributedDataParallel(Model(delay=0.09 if slow else 0.03))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for features, targets in loader:
            loss = nn.functional.mse_loss(model(features), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
