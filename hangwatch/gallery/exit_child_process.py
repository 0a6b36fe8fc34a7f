"""Training is over, but one rank has started a process with multiprocessing that never ends.

It is not a daemon, so the interpreter joins it on the way out and waits for ever. With --healthy it is told
to stop, and needs some seconds for its last upload.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from multiprocessing.synchronize import Event

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def upload(stop: Event) -> None:
    while not stop.is_set():
        time.sleep(1.0)
    time.sleep(4.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    stop = multiprocessing.Event()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    if rank == args.culprit:
        multiprocessing.get_context("fork").Process(target=upload, args=(stop,), name="uploader").start()

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(args.steps):
        loss = nn.functional.cross_entropy(model(torch.randn(16, 64)), torch.randint(0, 10, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once
    if args.healthy:
        stop.set()
    print(f"rank {rank}: training finished", flush=True)


if __name__ == "__main__":
    main()
