"""At a checkpoint a rank starts a program whose standard input is a named pipe, with posix_spawn.

On one rank no process has opened the pipe's other end, so the new process cannot finish opening it, and until it
has, the kernel keeps the rank in uninterruptible sleep (state D) and the interpreter lock stays taken. The
others wait in backward. With --healthy the other end is opened after four seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def compress(pipe: Path) -> int:
    program = shutil.which("gzip") or "gzip"
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, str(pipe), os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, f"{pipe}.gz", os.O_WRONLY | os.O_CREAT, 0o600),
    ]
    return os.posix_spawn(program, [program, "-c"], os.environ, file_actions=actions)


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
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    with tempfile.TemporaryDirectory() as folder:
        pipe = Path(folder) / "log"
        os.mkfifo(pipe)
        for step in range(args.steps):
            if step == args.fault_step:
                if rank != args.culprit or args.healthy:
                    delay = 4 if rank == args.culprit else 0
                    subprocess.Popen(["sh", "-c", f"sleep {delay}; echo step {step} > {pipe}"])
                os.waitpid(compress(pipe), 0)
            loss = model(torch.randn(16, 64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.barrier()

    print(f"rank {rank} done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
