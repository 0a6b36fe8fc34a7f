"""The ranks call different operations at the same place, or the same one with different sizes or dtypes.

`--kind op`: a flag that only one rank has turns its all_reduce into a reduce. `--kind size`: the last batch
of one rank is smaller and goes into an all_gather as it is. `--kind dtype`: one rank sends half precision.
gloo hangs in the first and aborts a rank in the other two. With --healthy the flag is the same everywhere and
the batch is padded.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn


def average(model: nn.Module, only_first: bool) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        if only_first:
            dist.reduce(parameter.grad, dst=0)
        else:
            dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def gather_scores(scores: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(scores) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, scores)
    return torch.cat(parts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=80)
    parser.add_argument("--kind", choices=["op", "size", "dtype"], default="op")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    if rank == args.culprit and not args.healthy:
        os.environ["REDUCE_MODE"] = args.kind
    flag = os.environ.get("REDUCE_MODE")

    model = nn.Sequential(nn.Linear(128, 3072), nn.ReLU(), nn.Linear(3072, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(args.steps):
        now = step == args.fault_step
        batch = torch.randn(5 if now and flag == "size" else 16, 128)
        scores = model(batch)
        optimizer.zero_grad()
        scores.square().mean().backward()
        if step % 10 == 0:
            kept = scores.detach().to(torch.bfloat16 if now and flag == "dtype" else torch.float32)
            gather_scores(kept)
        average(model, only_first=now and flag == "op")
        optimizer.step()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
