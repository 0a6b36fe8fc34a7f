"""Another job on this machine already listens on the port that this job has chosen for its rendezvous.

Rank 0 cannot bind the port and dies. The others do find a store there, the other job's, and wait in it for a
rank 0 that never comes; the launcher waits for them. With --healthy the other job has another port.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

OTHER_JOB = """
import os, sys, time
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", int(sys.argv[1]), is_master=True, wait_for_workers=False)
print(os.getpid(), flush=True)
time.sleep(1e6)
"""


def start_other_job(port: int) -> int:
    """Starts it from a shell of its own, with nothing of this job's environment."""
    command = shlex.join([sys.executable, "-c", OTHER_JOB, str(port)])
    shell = subprocess.Popen(["sh", "-c", f"{command} &"], env={"PATH": os.defpath}, stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    return int(shell.stdout.readline())


def train(rank: int, world_size: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DistributedDataParallel(nn.Linear(64, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--port", type=int, default=29507)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    other = start_other_job(0 if args.healthy else args.port)
    context = mp.get_context("spawn")
    ranks = [
        context.Process(target=train, args=(rank, args.ranks, args.port), name=f"rank-{rank}")
        for rank in range(args.ranks)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    os.kill(other, signal.SIGTERM)
    sys.exit(any(process.exitcode for process in ranks))


if __name__ == "__main__":
    main()
