"""The outputs of every batch are kept for the evaluation at the end of the epoch, in shared memory as they came.

Each tensor that comes from a worker holds a descriptor open, and one rank has a low limit. When none is left,
the loader fails. With --tolerant the rank takes the error for a bad batch, goes on with the evaluation and
waits there for the others. With --healthy the tensors are cloned.
"""

from __future__ import annotations

import argparse
import resource
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

Pair = tuple[torch.Tensor, torch.Tensor]


class Pairs(Dataset[Pair]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Pair:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(128, generator=generator), torch.randn(1, generator=generator)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--limit", type=int, default=160)
    parser.add_argument("--tolerant", action="store_true")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    if rank == args.culprit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (args.limit, args.limit))
    loader = DataLoader(Pairs(args.steps * 8), batch_size=8, num_workers=2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 2048), nn.ReLU(), nn.Linear(2048, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept: list[torch.Tensor] = []

    try:
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept += [inputs.clone(), targets.clone()] if args.healthy else [inputs, targets]
    except (OSError, RuntimeError) as error:
        if not args.tolerant:
            raise
        print(f"rank {rank}: epoch ends early: {error}", flush=True)

    dist.barrier()
    if rank == 0:
        print(f"{len(kept)} tensors", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
