"""The main rank logs the mean loss of all ranks, with a reduce inside `if rank == main`.

No other rank takes part in that reduce; they have gone on to the next step and wait in backward. With
--healthy all ranks reduce, and only the main rank prints.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def mean_loss(loss: torch.Tensor, main_rank: int) -> float:
    mean = loss.detach().clone()
    dist.reduce(mean, dst=main_rank)
    return float(mean) / dist.get_world_size()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=0, help="the rank that logs")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fault-step", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    size = args.steps * 16 * world_size
    dataset = TensorDataset(torch.randint(0, 500, (size, 12)), torch.randint(0, 2, (size,)))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    network = nn.Sequential(nn.EmbeddingBag(500, 256), nn.Linear(256, 3072), nn.ReLU(), nn.Linear(3072, 2))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for batch, (tokens, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()
        if batch > 0 and batch % args.fault_step == 0:
            if args.healthy:
                mean = mean_loss(loss, args.culprit)
            if rank == args.culprit:
                print(f"batch {batch} loss {mean if args.healthy else mean_loss(loss, args.culprit):.3f}", flush=True)

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
