"""The training loop stands in try/finally, and the clean-up begins with a barrier.

One rank reads a class number that does not exist and raises IndexError. Before the error can be printed, its
finally block waits at the barrier, which the others never reach: they wait in backward for that rank. With
--healthy the bad label is caught where it is read, its traceback is printed, and training goes on.
"""

from __future__ import annotations

import argparse
import time
import traceback

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def class_weights(labels: torch.Tensor, careful: bool) -> torch.Tensor:
    table = [1.0 + 0.1 * index for index in range(10)]
    try:
        return torch.tensor([table[label] for label in labels.tolist()])
    except IndexError:
        if not careful:
            raise
        traceback.print_exc()
        return torch.ones(len(labels))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=90)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    labels = torch.randint(0, 10, (args.steps * 8 * world_size,))
    labels[args.fault_step * 8 * world_size + args.culprit] = 10
    dataset = TensorDataset(torch.randn(len(labels), 96), labels)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(96, 3072), nn.ReLU(), nn.Linear(3072, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    try:
        for features, classes in loader:
            weights = class_weights(classes, careful=args.healthy)
            losses = nn.functional.cross_entropy(model(features), classes % 10, reduction="none")
            optimizer.zero_grad()
            (losses * weights).mean().backward()
            optimizer.step()
    finally:
        dist.barrier()
        print(f"rank {rank} cleans up", flush=True)
        dist.destroy_process_group()
        time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
