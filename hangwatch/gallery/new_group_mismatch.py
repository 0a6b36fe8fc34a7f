"""Sub-groups for tensor and data parallelism are made, but not by all ranks alike.

`--kind members`: only a group's members call new_group, and one rank is in none. `--kind order`: one rank
makes the same two groups in the opposite order. new_group is a collective of all ranks, so they wait in it.
With --healthy every rank makes every group, in the same order.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn


def make_groups(lists: list[list[int]], order: list[int], only_mine: bool) -> dict[int, dist.ProcessGroup | None]:
    groups: dict[int, dist.ProcessGroup | None] = {}
    for number in order:
        if only_mine and dist.get_rank() not in lists[number]:
            continue
        groups[number] = dist.new_group(lists[number])
    return groups


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--kind", choices=["members", "order"], default="members")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)

    all_ranks = list(range(world_size))
    others = [other for other in all_ranks if other != args.culprit]
    odd = rank == args.culprit and not args.healthy
    order = [1, 0] if odd and args.kind == "order" else [0, 1]
    only_mine = args.kind == "members" and not args.healthy
    groups = make_groups([others, all_ranks], order, only_mine)

    model = nn.Linear(64, 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        for parameter in model.parameters():
            if rank in others:
                dist.all_reduce(parameter.grad, group=groups[0])
            dist.all_reduce(parameter.grad, group=groups[1])
        optimizer.step()
    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
