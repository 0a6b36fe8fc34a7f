"""The main rank prepares the data for all, and the others wait at a barrier, as trainers advise.

It works, and nothing hangs: but it takes longer than half of the time after which the process group ends a wait,
and with more data it would take all of it. With --healthy it has little to do.
"""

from __future__ import annotations

import argparse
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset


class Documents(Dataset[torch.Tensor]):
    """Texts that take their time to be cut into tokens."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            tokens = torch.arange(2048).remainder(index + 2).sort().values
        return tokens[:64].float()


def tokenize(count: int) -> torch.Tensor:
    return torch.cat(list(DataLoader(Documents(count), batch_size=2)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=44, help="each takes half a second")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.timeout))
    rank = dist.get_rank()
    if rank == 0:
        tokens = tokenize(4 if args.healthy else args.documents)
        print(f"{tokens.numel()} tokens", flush=True)
    dist.barrier()

    torch.manual_seed(0)
    inputs = torch.randn(1600, 64)
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset)
    model = DistributedDataParallel(nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for features, targets in DataLoader(dataset, batch_size=16, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(features), targets).backward()
        optimizer.step()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
