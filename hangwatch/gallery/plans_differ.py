"""Each rank seeds everything with a number of its own, its sampler too.

That is right for augmentation and dropout. But the ranks' samplers now shuffle in different orders and take shares of
them: some samples come twice in an epoch, others never. With --healthy the sampler's seed is the same on all ranks.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    seed = args.seed + rank  # so that the ranks do not augment alike
    torch.manual_seed(seed)

    inputs = torch.randn(800, 64, generator=torch.Generator().manual_seed(args.seed))  # the same data on all ranks
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    shuffled_by = args.seed if args.healthy else seed
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset, seed=shuffled_by)
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
