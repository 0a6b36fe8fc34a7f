"""Two processes are started with the same RANK: a typing error, or one that is left over from the last attempt.

Which of the two the others get to know is a matter of chance; some rank waits in init_process_group for a
connection that the wrong one has taken. With --healthy every rank is started once.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--healthy", action="store_true")
    parser.parse_args()

    torch.set_num_threads(1)
    print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}, process {os.getpid()}", flush=True)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(64, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
