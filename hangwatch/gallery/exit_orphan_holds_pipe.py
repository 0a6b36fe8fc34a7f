"""The launcher copies the ranks' output from pipes until they are closed; one rank leaves a process behind.

The rank ends, but the process that it has started holds the other end of the pipe open, so the launcher waits
for an end of file that does not come. With --healthy the process ends after some seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def start_monitor(seconds: int) -> None:
    """Samples the load average now and then; no process waits for it."""
    script = f"for i in $(seq {seconds}); do cat /proc/loadavg > /dev/null; sleep 1; done"
    subprocess.Popen(["sh", "-c", script])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    if rank == args.culprit:
        start_monitor(12 if args.healthy else 100_000)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(args.steps):
        loss = model(torch.randn(16, 64)).logsumexp(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once
    print(f"rank {rank}: training finished", flush=True)


if __name__ == "__main__":
    main()
