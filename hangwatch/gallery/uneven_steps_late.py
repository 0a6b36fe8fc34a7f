"""Several epochs over shards that were split by hand; one rank has a batch less in every epoch.

At the end of an epoch the others' last gradients are paired with that rank's first ones of the next epoch,
unnoticed: ranks mix the gradients of different batches. Only after the last epoch is there nothing left to
pair them with. With --healthy the uneven inputs are joined: DDP shadows the missing batches.
"""

from __future__ import annotations

import argparse
import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset


def split(size: int, rank: int, world_size: int, short: int, batch_size: int) -> range:
    """Equal parts, except that the rank `short` gives up its last batch."""
    part = size // world_size
    end = (rank + 1) * part - (batch_size if rank == short else 0)
    return range(rank * part, end)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60, help="batches per epoch of the short rank")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)

    batch_size = 4
    size = world_size * (args.steps + 1) * batch_size
    images, labels = torch.randn(size, 1, 14, 14), torch.randint(0, 10, (size,))
    part = Subset(TensorDataset(images, labels), split(size, rank, world_size, args.culprit, batch_size))
    loader = DataLoader(part, batch_size=batch_size, shuffle=True)

    network = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 144, 64), nn.Linear(64, 10))
    ddp = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)

    seen = 0
    for epoch in range(args.epochs):
        with Join([ddp]) if args.healthy else contextlib.nullcontext():
            for image, label in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(ddp(image), label)
                loss.backward()
                optimizer.step()
                seen += len(label)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)

    counts: list[int | None] = [None] * world_size
    dist.all_gather_object(counts, seen)
    if rank == 0:
        print("samples per rank:", counts, flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
