"""Rank 0 deals trials to the workers that ask for one, and does not answer a worker that reports a failed trial.

That worker waits for its next trial. The other workers go on until no trial is left, and wait at the last barrier;
then rank 0 waits for a request from any rank. With --healthy rank 0 answers a failed trial like any other.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn

DONE = -1.0
FAILED = float("nan")


class Scheduler:
    """Deals learning rates to the workers, and notes the loss of each trial."""

    def __init__(self, trials: int, *, forgets: bool) -> None:
        self.rates = torch.logspace(-4, -1, trials).tolist()
        self.losses: dict[float, float] = {}
        self.forgets = forgets

    def serve(self, workers: int) -> None:
        request = torch.empty(2)
        while workers:
            who = dist.recv(request)
            rate, loss = request.tolist()
            if loss != loss and self.forgets:
                print(f"trial with rate {rate:.5f} has failed", flush=True)
                continue
            self.losses[rate] = loss
            following = self.rates.pop() if self.rates else DONE
            dist.send(torch.tensor([following]), dst=who)
            workers -= following == DONE


def trial(rate: float) -> float:
    """The loss after some steps of a small model."""
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    inputs = torch.randn(64, 16)
    for _ in range(20):
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    time.sleep(0.02)
    return loss.item()


def work(fails_at: int | None) -> None:
    """Ask for a trial and make it, until there is none left."""
    rate, loss, made = torch.zeros(1), 0.0, 0
    while True:
        dist.send(torch.tensor([rate.item(), loss]), dst=0)
        dist.recv(rate, src=0)
        if rate.item() == DONE:
            return
        made += 1
        loss = FAILED if made == fails_at else trial(rate.item())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=2, help="the worker with the trial that fails")
    parser.add_argument("--trials", type=int, default=120)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    if rank == 0:
        scheduler = Scheduler(args.trials, forgets=not args.healthy)
        scheduler.serve(size - 1)
        print(f"best of {len(scheduler.losses)} trials: {min(scheduler.losses.values()):.4f}", flush=True)
    else:
        work(fails_at=20 if rank == args.culprit else None)

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
