"""Early stopping on the validation loss that each rank computes on its own share.

One rank's share looks different, its loss rises, and it stops after an epoch while the others go on. It waits
before the final checkpoint; the others wait in backward of the next epoch. With --healthy the ranks average
the loss first, so all of them decide alike.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

Batch = tuple[torch.Tensor, ...]


class EarlyStopping:
    """Says stop when the loss has not improved for `patience` epochs."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.best = float("inf")
        self.bad_epochs = 0

    def __call__(self, loss: float) -> bool:
        self.bad_epochs = 0 if loss < self.best else self.bad_epochs + 1
        self.best = min(self.best, loss)
        return self.bad_epochs >= self.patience


def regression(size: int, sign: float) -> TensorDataset:
    inputs = torch.randn(size, 64)
    return TensorDataset(inputs, sign * inputs[:, :8].sum(dim=1, keepdim=True))


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader[Batch], together: bool) -> float:
    model.eval()
    losses = [nn.functional.mse_loss(model(inputs), targets) for inputs, targets in loader]
    model.train()
    loss = torch.stack(losses).mean()
    if together:
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60, help="batches per epoch")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    dataset = regression(args.steps * 8 * world_size, sign=1.0)
    sampler: DistributedSampler[Batch] = DistributedSampler(dataset)
    train_loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    validation = regression(128, sign=-1.0 if rank == args.culprit else 1.0)
    validation_loader = DataLoader(validation, batch_size=32)

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    should_stop = EarlyStopping(patience=1)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
        validation_loss = validate(model.module, validation_loader, together=args.healthy)
        print(f"rank {rank} epoch {epoch} validation {validation_loss:.2f}", flush=True)
        if should_stop(validation_loss):
            break

    dist.barrier()
    if rank == 0:
        print("best", should_stop.best, flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
