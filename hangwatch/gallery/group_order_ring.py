"""Every rank shares a group of two with each of its neighbours, as in a halo exchange on a ring.

All of them reduce with their left neighbour first. The left neighbour is busy with its own left one, and so
round the ring: no two ranks disagree directly, yet none moves. Needs three ranks. With --healthy rank 0
begins on the other side, which breaks the circle.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=80)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    edges = [dist.new_group(sorted([left, (left + 1) % world_size])) for left in range(world_size)]
    left, right = edges[rank - 1], edges[rank]
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    field = torch.randn(48, 64)

    for step in range(args.steps):
        loss = nn.functional.mse_loss(model(field), field)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for parameter in model.parameters():
            dist.all_reduce(parameter.data, op=dist.ReduceOp.SUM)
            parameter.data /= world_size
        if step > 0 and step % args.fault_step == 0:
            order = [right, left] if args.healthy and rank == 0 else [left, right]
            for edge in order:
                dist.all_reduce(field, group=edge)
                field /= 2

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
