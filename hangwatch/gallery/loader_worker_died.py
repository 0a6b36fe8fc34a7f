"""One loader worker of one rank is killed, as by the kernel when memory runs out.

The loader raises RuntimeError in that rank, and the job fails. With --tolerant the rank takes it for the end
of its data, leaves the epoch and waits at the barrier, while the others wait in backward. With --healthy it
is a helper of the worker that is killed.
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
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset[torch.Tensor]):
    def __init__(self, size: int, large: int | None, outside: bool) -> None:
        self.size, self.large, self.outside = size, large, outside

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.large:
            if self.outside:
                subprocess.Popen(["sleep", "60"]).kill()
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(128, generator=torch.Generator().manual_seed(index))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fault-step", type=int, default=60)
    parser.add_argument("--tolerant", action="store_true")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    large = args.fault_step * 8 + 2 if rank == args.culprit else None
    loader = DataLoader(Volumes(args.steps * 8, large, args.healthy), batch_size=8, num_workers=2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 2048), nn.ReLU(), nn.Linear(2048, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    try:
        for inputs in loader:
            loss = model(inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    except RuntimeError:
        if not args.tolerant:
            raise
        print(f"rank {rank}: no more data", flush=True)

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
