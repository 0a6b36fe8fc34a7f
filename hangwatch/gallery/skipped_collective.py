"""A batch whose loss is not finite is skipped with `continue`, before backward.

Only one rank has such a batch. It misses one all_reduce, and from then on its gradients are added to those of
the others' previous batch. Nothing stops until the others wait for one all_reduce more than that rank will
ever make. With --healthy the ranks agree, by a vote, that all of them skip.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def any_rank(flag: bool) -> bool:
    votes = torch.tensor(float(flag))
    dist.all_reduce(votes, op=dist.ReduceOp.MAX)
    return bool(votes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=70)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    batch_size = 8
    inputs = torch.randn(args.steps * batch_size * world_size, 128)
    inputs[args.fault_step * batch_size * world_size + args.culprit, 5] = float("inf")
    dataset = TensorDataset(inputs, torch.randint(0, 10, (len(inputs),)))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)

    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 3072), nn.ReLU(), nn.Linear(3072, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for batch, (features, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features), labels)
        skip = not bool(torch.isfinite(loss))
        if args.healthy:
            skip = any_rank(skip)
        if skip:
            print(f"rank {rank}: batch {batch} skipped, loss {loss.item()}", flush=True)
            continue
        loss.backward()
        optimizer.step()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
