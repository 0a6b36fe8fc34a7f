"""One rank ends in the middle of training: killed, crashed, or gone on its own.

With NCCL the others wait for it; with gloo they fail a moment later because the connection was closed. Their
messages hide the one that matters. With --healthy it is only a helper process of that rank that is killed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def end(how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "crashed":
        ctypes.string_at(8)
    os._exit(3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fault-step", type=int, default=100)
    parser.add_argument("--how", choices=["killed", "crashed", "gone"], default="killed")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 3072), nn.ReLU(), nn.Linear(3072, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for step in range(args.steps):
        loss = model(torch.randn(16, 128)).square().mean()
        optimizer.zero_grad()
        if rank == args.culprit and step == args.fault_step:
            if not args.healthy:
                end(args.how)
            helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            helper.kill()
        loss.backward()
        optimizer.step()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
