"""One loader worker of one rank is stopped (state T), as by a debugger or a memory-saving scheduler.

With the default sharing strategy the rank's main thread is found in a socket of multiprocessing, asking the
worker for the descriptor of a batch that is already there; with `--sharing file_system` it waits in the
queue. With --healthy another process resumes the worker after four seconds.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset[torch.Tensor]):
    def __init__(self, size: int, stop_at: int | None, resume: bool) -> None:
        self.size, self.stop_at, self.resume = size, stop_at, resume

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.stop_at:
            if self.resume:
                subprocess.Popen(["sh", "-c", f"sleep 4; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        return torch.randn(128, generator=torch.Generator().manual_seed(index))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fault-step", type=int, default=60)
    parser.add_argument("--sharing", choices=["file_descriptor", "file_system"], default="file_descriptor")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    mp.set_sharing_strategy(args.sharing)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    stop_at = args.fault_step * 8 + 2 if rank == args.culprit else None
    dataset = Windows(args.steps * 8, stop_at, args.healthy)
    loader = DataLoader(dataset, batch_size=8, num_workers=2, prefetch_factor=4)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 2048), nn.ReLU(), nn.Linear(2048, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for inputs in loader:
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
