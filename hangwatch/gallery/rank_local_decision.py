"""Every rank keeps the best checkpoint by its own validation loss, and saving one is a matter of all ranks.

In one epoch one rank alone sees its loss improve, collects the states of all, and waits; the others train on.
With --healthy the loss is averaged over the ranks before it is compared.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

LOSSES = (1.0, 0.8, 0.9, 0.7)


class Checkpoints:
    """Keeps the state of the best epoch."""

    def __init__(self) -> None:
        self.best = float("inf")

    def update(self, loss: float) -> None:
        if loss >= self.best:
            return
        self.best = loss
        states: list[object] = [None] * dist.get_world_size()
        dist.all_gather_object(states, torch.get_rng_state().tolist())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40, help="batches per epoch")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    inputs = torch.randn(args.steps * 8 * world_size, 64)
    dataset = TensorDataset(inputs, inputs[:, :8].sum(dim=1, keepdim=True))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    checkpoints = Checkpoints()

    for epoch, validation in enumerate(LOSSES):
        sampler.set_epoch(epoch)
        for features, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(features), targets).backward()
            optimizer.step()
        loss = torch.tensor(0.75 if rank == args.culprit and epoch == 2 else validation)
        if args.healthy:
            dist.all_reduce(loss)
            loss /= world_size
        checkpoints.update(loss.item())

    dist.barrier()
    if rank == 0:
        print(f"best {checkpoints.best:.2f}", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
