"""On the stand-in for NCCL: one rank is stopped (SIGSTOP), host and device queue alike.

With --healthy it is resumed three seconds later.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess

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
    parser.add_argument("--fault-step", type=int, default=80)
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

    for batch, (inputs, targets) in enumerate(loader):
        if rank == args.culprit and batch == args.fault_step:
            if args.healthy:
                subprocess.Popen(["sh", "-c", f"sleep 3; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        standin.synchronize()  # as loss.item() does

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
