"""On the stand-in for NCCL: a kernel of one rank's device never ends, and what is queued behind it never starts.

All ranks have enqueued the same collective, and all hosts wait. With --healthy the kernel takes six seconds.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hangwatch.gallery import standin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=80)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    os.environ.setdefault("TORCH_NCCL_ENABLE_TIMING", "1")  # without start events no record says which device is stuck
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
        if step == args.fault_step and rank == args.culprit:
            if args.healthy:
                standin.kernel(6.0)
            else:
                standin.stuck_kernel()
        loss.backward()
        optimizer.step()
        standin.synchronize()  # as loss.item() does

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
