"""A detector whose branch for boxes is left out of the graph where a batch has none.

One rank's share has a batch without any box: its backward ends without the gradients of that branch, whose bucket
is never reduced, and the rank goes on to gather the losses. With --healthy the branch always takes part, with a
weight of zero where there is nothing to learn.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

Image = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Images(Dataset[Image]):
    """Features, the boxes that were drawn on the image, and a class."""

    def __init__(self, size: int, without_boxes: range) -> None:
        self.size, self.without_boxes = size, without_boxes

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Image:
        random = torch.Generator().manual_seed(index)
        boxes = torch.rand(0 if index in self.without_boxes else 2, 4, generator=random)
        return torch.randn(64, generator=random), boxes, torch.tensor(index % 4)


def collate(images: list[Image]) -> Image:
    features, boxes, classes = zip(*images, strict=True)
    return torch.stack(features), torch.cat(boxes), torch.stack(classes)


class Detector(nn.Module):
    def __init__(self, *, always: bool) -> None:
        super().__init__()
        self.backbone, self.head = nn.Linear(64, 64), nn.Linear(64, 4)
        self.boxes = nn.Linear(4, 64)
        self.always = always

    def forward(self, features: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        hidden = self.backbone(features).relu()
        if len(boxes):
            hidden = hidden + self.boxes(boxes).mean(0)
        elif self.always:
            hidden = hidden + 0.0 * self.boxes(torch.zeros(1, 4)).mean(0)
        scores: torch.Tensor = self.head(hidden)
        return scores


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fault-step", type=int, default=70)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    first = args.fault_step * 4
    images = Images(args.steps * 4, range(first, first + 4) if rank == args.culprit else range(0))
    model = DistributedDataParallel(Detector(always=args.healthy))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for features, boxes, classes in DataLoader(images, batch_size=4, collate_fn=collate):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features, boxes), classes)
        loss.backward()
        optimizer.step()
        losses = [torch.zeros(1) for _ in range(world_size)]
        dist.all_gather(losses, loss.detach().reshape(1))

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
