"""Every rank appends its losses to one CSV file under an exclusive file lock.

A child process of one rank (a plotting helper) has taken the lock and keeps it. That rank stands in flock(),
and the others wait in backward for its gradients. With --healthy the helper lets go after four seconds.
"""

from __future__ import annotations

import argparse
import fcntl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PLOT = """
import fcntl, sys, time
table = open(sys.argv[1])
fcntl.flock(table, fcntl.LOCK_EX)
print("plotting", flush=True)
time.sleep(float(sys.argv[2]))
"""


def append_row(path: Path, step: int, loss: float) -> None:
    with path.open("a") as table:
        fcntl.flock(table, fcntl.LOCK_EX)
        table.write(f"{step},{loss}\n")


def plot(path: Path, seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PLOT, str(path), str(seconds)]
    helper = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert helper.stdout is not None
    helper.stdout.readline()
    return helper


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
    model = DistributedDataParallel(nn.GRU(32, 96, batch_first=True))
    optimizer = torch.optim.Adam(model.parameters())

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "loss.csv"
        path.touch()
        for step in range(args.steps):
            output, _ = model(torch.randn(8, 8, 32))
            loss = output.square().mean()
            if rank == args.culprit and step == args.fault_step:
                plot(path, 4 if args.healthy else 1e6)
            append_row(path, step, loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once
    print(f"rank {rank} done", flush=True)


if __name__ == "__main__":
    main()
