"""A trainer catches every exception, so that one bad run does not stop a sweep of several.

One rank's augmentation raises ValueError; the trainer notes it and goes on to collect the results, which is a
gather that its peers have not reached. The message is only shown after the gather, so no user ever sees it.
With --healthy the augmentation only warns.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Result:
    losses: list[float] = field(default_factory=list)
    error: str | None = None


def crop(image: torch.Tensor, size: int, strict: bool) -> torch.Tensor:
    if size > image.shape[-1]:
        if strict:
            raise ValueError(f"cannot crop {size} pixels out of {image.shape[-1]}")
        warnings.warn(f"crop of {size} pixels is larger than the image", stacklevel=2)
        size = image.shape[-1]
    return image[..., :size, :size]


class SweepTrainer:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        network = nn.Sequential(nn.Conv2d(3, 24, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.model = DistributedDataParallel(nn.Sequential(network, nn.Linear(384, 10)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def run(self) -> Result:
        result = Result()
        for step in range(self.args.steps):
            odd = dist.get_rank() == self.args.culprit and step == self.args.fault_step
            images = crop(torch.randn(8, 3, 32, 32), 48 if odd else 24, strict=not self.args.healthy)
            loss = self.model(images).logsumexp(dim=1).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            result.losses.append(loss.item())
        return result

    def run_safely(self) -> Result:
        try:
            return self.run()
        except Exception as error:
            return Result(error=str(error))

    def collect(self, result: Result) -> None:
        results: list[Result | None] = [None] * dist.get_world_size()
        dist.gather_object(result, results if dist.get_rank() == 0 else None)
        if dist.get_rank() == 0:
            print("errors:", [part.error for part in results if part], flush=True)


def train(rank: int, args: argparse.Namespace) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    trainer = SweepTrainer(args)
    trainer.collect(trainer.run_safely())
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--port", type=int, default=29504)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=80)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()
    mp.spawn(train, args=(args,), nprocs=args.ranks)


if __name__ == "__main__":
    main()
