"""Two groups over the same ranks, one for gradients and one for metrics, each used by all ranks.

One rank reduces its metrics before its gradients, the others the other way round. Each side waits in one
group for the ranks that wait in the other. With --healthy all keep the same order.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn


def reduce_gradients(model: nn.Module, group: dist.ProcessGroup | None) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= dist.get_world_size(group)


def reduce_metrics(loss: torch.Tensor, group: dist.ProcessGroup | None) -> float:
    mean = loss.detach().clone()
    dist.all_reduce(mean, group=group)
    return float(mean) / dist.get_world_size(group)


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
    gradients, metrics = dist.new_group(), dist.new_group()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 3072), nn.Tanh(), nn.Linear(3072, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    early = rank == args.culprit and not args.healthy

    for step in range(args.steps):
        loss = model(torch.randn(32, 128)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        report = step > 0 and step % args.fault_step == 0
        if report and early:
            reduce_metrics(loss, metrics)
        reduce_gradients(model, gradients)
        if report and not early:
            reduce_metrics(loss, metrics)
        optimizer.step()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
