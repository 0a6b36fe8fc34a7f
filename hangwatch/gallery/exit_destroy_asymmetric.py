"""One rank believes that training is over and destroys its process group; the others have one more epoch to go.

It keeps a reference to the group in its trainer and goes on to export the model, so its connections stay
open. The others wait in backward for a rank that has left. With --healthy all ranks train the same number of
epochs, and that rank's export takes some seconds.
"""

from __future__ import annotations

import argparse
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self) -> None:
        self.group = dist.group.WORLD
        network = nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 10))
        self.model = DistributedDataParallel(network)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def epoch(self, steps: int) -> None:
        for _ in range(steps):
            loss = self.model(torch.randn(16, 64)).logsumexp(dim=1).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def export(approved: threading.Event, patience: float | None) -> None:
    """Waits until a person approves the model."""
    approved.wait(patience)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60, help="batches per epoch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    trainer = Trainer()
    early = rank == args.culprit and not args.healthy
    for _ in range(args.epochs - 1 if early else args.epochs):
        trainer.epoch(args.steps)

    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once
    if rank == args.culprit:
        export(threading.Event(), patience=5.0 if args.healthy else None)
    print(f"rank {rank}: training finished", flush=True)


if __name__ == "__main__":
    main()
