"""Each rank sends its boundary to the right neighbour, then receives from the left one.

A send only returns when the other side receives, and all of them are sending. Up to some step the exchange
goes through batch_isend_irecv; then a "simplified" version is switched on. With --healthy the first version
stays.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn


def exchange(boundary: torch.Tensor) -> torch.Tensor:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    incoming = torch.empty_like(boundary)
    operations = [
        dist.P2POp(dist.isend, boundary, (rank + 1) % world_size),
        dist.P2POp(dist.irecv, incoming, (rank - 1) % world_size),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return incoming


def exchange_simply(boundary: torch.Tensor) -> torch.Tensor:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    incoming = torch.empty_like(boundary)
    dist.send(boundary, (rank + 1) % world_size)
    dist.recv(incoming, (rank - 1) % world_size)
    return incoming


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=80)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(256, 3072), nn.ReLU(), nn.Linear(3072, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    boundary = torch.randn(32, 256)

    for step in range(args.steps):
        simple = step >= args.fault_step and not args.healthy
        target = exchange_simply(boundary) if simple else exchange(boundary)
        prediction = model(boundary)
        loss = nn.functional.mse_loss(prediction, target)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        boundary = prediction.detach()

    dist.barrier()
    if dist.get_rank() == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
