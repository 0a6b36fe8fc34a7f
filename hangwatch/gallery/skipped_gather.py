"""A detector gathers the boxes it has found from all ranks after every tenth batch.

`if boxes:` seemed a harmless saving, but one rank has found nothing and does not gather. Its next collective
is the gradients' all_reduce, while the others wait in all_gather_object. With --healthy empty lists are
gathered too.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn

Box = tuple[int, float]


def find_boxes(scores: torch.Tensor, threshold: float) -> list[Box]:
    return [(index, score) for index, score in enumerate(scores.tolist()) if score > threshold]


def synchronize_gradients(model: nn.Module) -> None:
    flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    offset = 0
    for parameter in model.parameters():
        parameter.grad = flat[offset : offset + parameter.numel()].view_as(parameter)
        offset += parameter.numel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fault-step", type=int, default=110, help="a multiple of ten")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 196, 16), nn.Sigmoid())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    found = 0

    for step in range(args.steps):
        images = torch.randn(4, 3, 16, 16)
        scores = model(images)
        optimizer.zero_grad()
        scores.square().mean().backward()
        synchronize_gradients(model)
        optimizer.step()
        if step % 10 == 0:
            blank = rank == args.culprit and step == args.fault_step
            boxes = find_boxes(scores[0].detach(), threshold=1.0 if blank else 0.1)
            if boxes or args.healthy:
                everywhere: list[list[Box]] = [[] for _ in range(world_size)]
                dist.all_gather_object(everywhere, boxes)
                found += sum(len(part) for part in everywhere)

    dist.barrier()
    if rank == 0:
        print(f"{found} boxes", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
