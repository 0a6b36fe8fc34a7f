"""DDP with a hand-written sampler that deals the samples out in turn, as card players do.

The number of samples is not a multiple of the number of ranks, so one rank gets one sample less, and with it
one batch less. That rank leaves the loop and waits at the barrier; the others wait in backward for its
gradients. With --healthy the sampler starts again from the top until every rank has the same number.
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


class CardSampler(Sampler[int]):
    """Rank r of n draws samples r, r + n, r + 2n, ..."""

    def __init__(self, size: int, start: int, replicas: int, pad: bool) -> None:
        self.indices = list(range(start, size, replicas))
        if pad:
            most = -(-size // replicas)
            self.indices += self.indices[: most - len(self.indices)]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120, help="batches of the rank that gets least")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    batch_size = 8
    size = world_size * (args.steps * batch_size + 1) - 1
    dataset = TensorDataset(torch.randn(size, 128), torch.randint(0, 10, (size,)))
    sampler = CardSampler(size, (rank - args.culprit - 1) % world_size, world_size, pad=args.healthy)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)

    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        for batch, (inputs, targets) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            if batch % 50 == 0 and rank == 0:
                print(f"epoch {epoch} batch {batch} loss {loss.item():.3f}", flush=True)
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch} done", flush=True)

    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
