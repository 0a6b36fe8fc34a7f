"""One rank is stopped by the job-control signal, as a debugger, a batch scheduler or Ctrl-Z does it.

The kernel no longer runs it (state T), its sockets stay open, and the others wait in backward for its
gradients. With --healthy another process resumes it three seconds later.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fault-step", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    size = args.steps * 8 * dist.get_world_size()
    dataset = TensorDataset(torch.randn(size, 128), torch.randn(size, 1))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 3072), nn.ReLU(), nn.Linear(3072, 1)))
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

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
