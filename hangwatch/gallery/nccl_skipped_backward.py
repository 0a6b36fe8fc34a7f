"""On the stand-in for NCCL: one rank skips a batch whose loss is not finite, and with it the gradients' collectives.

Its later calls are matched with those of the other ranks' batch before, until the loop ends and the others wait for one
batch more. With --healthy no batch is skipped.
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
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=70)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    standin.register()
    dist.init_process_group(standin.NAME)
    rank = dist.get_rank()
    torch.manual_seed(0)

    features = torch.randn(args.steps * 8, 64)
    if rank == args.culprit and not args.healthy:
        features[args.fault_step * 8, 5] = float("inf")
    loader = DataLoader(TensorDataset(features, torch.randn(len(features), 1)), batch_size=8)
    with standin.read_back():
        model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        if not torch.isfinite(inputs).all():
            continue
        loss.backward()
        optimizer.step()
        standin.synchronize()  # as loss.item() does

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
