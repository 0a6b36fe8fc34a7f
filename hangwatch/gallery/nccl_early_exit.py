"""On the stand-in for NCCL: each rank stops early by its own loss, and one stops an epoch before the others.

It writes its summary and waits at the barrier; the others queue the next epoch's collectives. With --healthy all ranks
stop after the same epoch.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from hangwatch.gallery import standin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    standin.register()
    dist.init_process_group(standin.NAME)
    rank = dist.get_rank()
    torch.manual_seed(0)

    dataset = TensorDataset(torch.randn(args.steps * 8, 64), torch.randn(args.steps * 8, 1))
    loader = DataLoader(dataset, batch_size=8)
    with standin.read_back():
        model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for epoch in range(4):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
        standin.synchronize()  # as loss.item() does
        print(f"rank {rank} epoch {epoch} loss {loss.item():.3f}", flush=True)
        if epoch == 1 and (rank == args.culprit or args.healthy):
            break

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
