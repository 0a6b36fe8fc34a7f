"""A context manager sets the process group up and, on the way out, waits until all ranks are done.

One rank raises FileNotFoundError when it opens its next shard, and stands in `__exit__` with that error
pending; the others wait in an all_reduce for it. With --healthy a missing shard is replaced by another one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from types import TracebackType

import torch
import torch.distributed as dist
from torch import nn


class Distributed:
    def __enter__(self) -> Distributed:
        dist.init_process_group("gloo")
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        dist.barrier()
        dist.destroy_process_group()
        time.sleep(0.1)  # gloo's threads may abort the process if it ends at once

    def average(self, model: nn.Module) -> None:
        for parameter in model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad /= self.world_size


def load_shard(folder: Path, number: int, lenient: bool) -> torch.Tensor:
    path = folder / f"{number}.pt"
    if lenient and not path.exists():
        path = folder / "0.pt"
    shard: torch.Tensor = torch.load(path)
    return shard


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--fault-shard", type=int, default=4)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    with Distributed() as job, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(args.shards):
            if job.rank != args.culprit or number != args.fault_shard:
                torch.save(torch.randn(20, 8, 128), folder / f"{number}.pt")
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(128, 3072), nn.ReLU(), nn.Linear(3072, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for number in range(args.shards):
            for batch in load_shard(folder, number, lenient=args.healthy):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                job.average(model)
                optimizer.step()
        print(f"rank {job.rank} done", flush=True)


if __name__ == "__main__":
    main()
