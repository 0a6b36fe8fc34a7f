"""On the stand-in for NCCL: one rank has fewer batches, leaves the loop, and waits at the barrier.

The hosts queue their work and wait every tenth step, where they read the loss. With --healthy every rank has the same
number of batches, and the hosts read nothing before the end: they run far ahead of their streams, one of which
begins with a kernel of six seconds.
"""

from __future__ import annotations

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from hangwatch.gallery import standin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds until the stand-in's watchdog aborts")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    standin.register()
    dist.init_process_group(standin.NAME, timeout=timedelta(seconds=args.timeout))
    rank = dist.get_rank()
    torch.manual_seed(0)

    short = rank == args.culprit and not args.healthy
    size = 8 * (args.steps if short else args.steps + 1)
    loader = DataLoader(TensorDataset(torch.randn(size, 64), torch.randn(size, 1)), batch_size=8)
    with standin.read_back():
        model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if args.healthy and rank == args.culprit:
        standin.kernel(6.0)

    for batch, (inputs, targets) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        if batch % 10 == 0 and not args.healthy:
            standin.synchronize()  # as loss.item() does

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
