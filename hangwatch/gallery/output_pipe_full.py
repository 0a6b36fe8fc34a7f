"""The launcher connects the ranks' output to pipes and reads them only after the ranks have ended.

One rank prints so much that its pipe is full and its print does not return; the others wait in backward. With
--healthy the launcher copies the output all the time, and the rank prints as much.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def report(step: int, loss: float, weights: torch.Tensor | None) -> None:
    print(f"step {step} loss {loss:.4f}", flush=True)
    if weights is not None:
        print("weights", weights.tolist(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1, help="the rank that prints much")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    first = nn.Linear(64, 3072)
    model = DistributedDataParallel(nn.Sequential(first, nn.ReLU(), nn.Linear(3072, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(args.steps):
        loss = model(torch.randn(16, 64)).logsumexp(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step, loss.item(), first.weight[:1, :32] if rank == args.culprit else None)

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
