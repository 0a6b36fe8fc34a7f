"""On the stand-in for NCCL: one rank evaluates alone, and averages its metric in an all_reduce that no other calls.

With --healthy it evaluates alone for eight seconds without any collective, while the streams of the others wait.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hangwatch.gallery import standin


def evaluate(model: nn.Module, alone: bool) -> float:
    total = torch.zeros(1)
    until = time.monotonic() + (8.0 if alone else 0.2)
    while time.monotonic() < until:
        with torch.no_grad():
            total += model(torch.randn(32, 64)).abs().mean()
    if not alone:
        dist.all_reduce(total)
        standin.synchronize()  # as total.item() does
    return total.item() / dist.get_world_size()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=80)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    standin.register()
    dist.init_process_group(standin.NAME)
    rank = dist.get_rank()
    torch.manual_seed(0)
    with standin.read_back():
        model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for step in range(args.steps):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 64)).square().mean()
        loss.backward()
        optimizer.step()
        if step == args.fault_step and rank == args.culprit:
            print(f"step {step}: {evaluate(model.module, args.healthy):.3f}", flush=True)
        standin.synchronize()  # as loss.item() does

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
