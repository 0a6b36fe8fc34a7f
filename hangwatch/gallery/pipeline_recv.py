"""A pipeline: every rank is a stage that receives activations from the one before and sends its own on.

One stage counts one micro-batch less than the others: it sends seven, goes back to the top of the step and
waits for the first activation of the next one, or for the gradient, while its successor waits for the eighth.
Rank 0 counts wrong if it is the one. With --healthy all stages count the same, and one of them is slow.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn

SHAPE = (8, 128)


class Stage:
    def __init__(self, rank: int, world_size: int, pause: float) -> None:
        self.rank, self.last, self.pause = rank, world_size - 1, pause
        self.layer = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128))
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.01)

    def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        entry = torch.randn(SHAPE)
        if self.rank > 0:
            dist.recv(entry, src=self.rank - 1)
        entry.requires_grad_()
        output: torch.Tensor = self.layer(entry)
        time.sleep(self.pause)
        if self.rank < self.last:
            dist.send(output.detach(), dst=self.rank + 1)
        return entry, output

    def backward(self, entry: torch.Tensor, output: torch.Tensor) -> None:
        gradient = torch.empty(SHAPE)
        if self.rank < self.last:
            dist.recv(gradient, src=self.rank + 1)
            output.backward(gradient)
        else:
            output.square().mean().backward()
        if self.rank > 0 and entry.grad is not None:
            dist.send(entry.grad, dst=self.rank - 1)

    def step(self, micro_batches: int) -> None:
        self.optimizer.zero_grad()
        passes = [self.forward() for _ in range(micro_batches)]
        for entry, output in passes:
            self.backward(entry, output)
        self.optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fault-step", type=int, default=30)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    odd = rank == args.culprit
    stage = Stage(rank, dist.get_world_size(), pause=0.01 if odd and args.healthy else 0.0)

    for step in range(args.steps):
        stage.step(7 if odd and step == args.fault_step and not args.healthy else 8)

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
