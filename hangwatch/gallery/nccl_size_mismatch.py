"""On the stand-in for NCCL: one rank's last batch is smaller, and goes into an all_gather as it is.

gloo would abort a rank for it; NCCL waits on the devices, and the hosts where they read the result. With --healthy all
batches have one size.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hangwatch.gallery import standin


def gather_scores(scores: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(scores) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, scores)
    return torch.cat(parts)


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
        small = step == args.fault_step and rank == args.culprit and not args.healthy
        scores = model(torch.randn(5 if small else 16, 64))
        optimizer.zero_grad()
        scores.square().mean().backward()
        optimizer.step()
        if step % 10 == 0:
            gathered = gather_scores(scores.detach())
            standin.synchronize()  # as print(gathered) does
            if rank == 0:
                print(f"step {step}: {gathered.mean():.3f}", flush=True)

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
