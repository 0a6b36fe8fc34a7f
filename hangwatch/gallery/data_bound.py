"""Every sample is read and unpacked in the training process itself, which takes longer than training on it.

More GPUs do not help: all of them wait for their loaders. With --healthy the samples are in memory.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

Sample = tuple[torch.Tensor, torch.Tensor]


class Archive(Dataset[Sample]):
    """Samples that take `delay` seconds each to be unpacked."""

    def __init__(self, size: int, delay: float) -> None:
        self.inputs = torch.randn(size, 64)
        self.delay = delay

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Sample:
        if self.delay:
            time.sleep(self.delay)
        return self.inputs[index], self.inputs[index].sum().unsqueeze(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    dataset = Archive(60 * 16 * world_size, delay=0 if args.healthy else 0.005)
    sampler: DistributedSampler[Sample] = DistributedSampler(dataset)
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
