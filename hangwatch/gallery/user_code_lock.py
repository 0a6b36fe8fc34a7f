"""A running average is shared between the training loop and a background printer, under one lock.

On one rank the printer takes the lock and then waits for a value that only the training loop can bring. The
main thread stands at the lock in its own code, and the other ranks wait for it in an all_reduce. With
--healthy the printer gives up waiting after four seconds.
"""

from __future__ import annotations

import argparse
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn


class RunningMean:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.total, self.count = 0.0, 0
        self.requests: queue.Queue[str] = queue.Queue()

    def add(self, value: float) -> None:
        with self.lock:
            self.total += value
            self.count += 1

    def report(self, patience: float | None) -> None:
        with self.lock:
            try:
                title = self.requests.get(timeout=patience)
            except queue.Empty:
                title = "mean"
            print(title, self.total / self.count, flush=True)


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=80)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mean = RunningMean()

    for step in range(args.steps):
        loss = model(torch.randn(32, 128)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if step == args.fault_step - 1 and rank == args.culprit:
            patience = 4.0 if args.healthy else None
            printer = threading.Thread(target=mean.report, args=(patience,), name="printer", daemon=True)
            printer.start()
            printer.join(timeout=0.2)
        mean.add(loss.item())

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
