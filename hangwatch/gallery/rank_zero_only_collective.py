"""Only one rank validates, but through the DDP wrapper, whose forward broadcasts the batch-norm buffers.

That rank is alone in its broadcast; the others wait at the barrier behind the validation. With --healthy the
validation calls `model.module`, which communicates nothing, and takes some seconds.
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


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader[Batch], pause: float) -> float:
    model.eval()
    right = 0
    for images, labels in loader:
        right += int((model(images).argmax(dim=1) == labels).sum())
        time.sleep(pause)
    model.train()
    return right / len(loader)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=0, help="the rank that validates")
    parser.add_argument("--steps", type=int, default=80, help="batches per epoch")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    size = args.steps * 8 * world_size
    dataset = TensorDataset(torch.randn(size, 3, 12, 12), torch.randint(0, 10, (size,)))
    sampler: DistributedSampler[Batch] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    validation = TensorDataset(torch.randn(80, 3, 12, 12), torch.randint(0, 10, (80,)))
    validation_loader = DataLoader(validation, batch_size=8)

    network = nn.Sequential(nn.Conv2d(3, 24, 3), nn.BatchNorm2d(24), nn.ReLU(), nn.Flatten(), nn.Linear(2400, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        if rank == args.culprit:
            evaluated = model.module if args.healthy else model
            accuracy = validate(evaluated, validation_loader, pause=0.4 if args.healthy else 0.0)
            print(f"epoch {epoch}: accuracy {accuracy:.3f}", flush=True)
        dist.barrier()

    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
