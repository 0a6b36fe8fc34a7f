"""An experiment tracker flushes its events in an atexit handler: it waits until the server has confirmed them all.

On one rank the confirmation of the last event was lost, so that rank's process stays after the end of
training. With --healthy the last confirmation is only late.
"""

from __future__ import annotations

import argparse
import atexit
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Tracker:
    """Sends events; the server's confirmations are simulated by timers."""

    def __init__(self) -> None:
        self.open = 0
        self.changed = threading.Condition()
        atexit.register(self.finish)

    def send(self, delay: float | None) -> None:
        with self.changed:
            self.open += 1
        if delay is not None:
            timer = threading.Timer(delay, self.confirm)
            timer.daemon = True
            timer.start()

    def confirm(self) -> None:
        with self.changed:
            self.open -= 1
            self.changed.notify()

    def finish(self) -> None:
        with self.changed:
            while self.open:
                self.changed.wait()


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
    tracker = Tracker()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(args.steps):
        loss = model(torch.randn(16, 64)).logsumexp(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            tracker.send(delay=0.05)

    lost = rank == args.culprit
    tracker.send(delay=0.05 if not lost else 5.0 if args.healthy else None)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once
    print(f"rank {rank}: training finished", flush=True)


if __name__ == "__main__":
    main()
