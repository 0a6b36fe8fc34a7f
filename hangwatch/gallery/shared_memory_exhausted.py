"""One rank runs where /dev/shm is small, as it is in containers by default, and its workers pass large batches.

When the batches that wait do not fit any more, a worker dies with a bus error or reports that there is no
space. With --healthy /dev/shm is just large enough. Needs root and util-linux, for a /dev/shm of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset[torch.Tensor]):
    """Scans of 1 MB; the later ones have more channels than the first."""

    def __init__(self, steps: int, growth: int) -> None:
        self.steps, self.growth = steps, growth

    def __len__(self) -> int:
        return self.steps * 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(4 if index < self.growth else 16, 256, 256)


def enter_container(megabytes: int) -> None:
    """Starts this script again with its own /dev/shm."""
    os.environ["SHM_SIZE"] = f"{megabytes}m"
    mount = f'mount -t tmpfs -o size={megabytes}m tmpfs /dev/shm && exec "$@"'
    os.execvp("unshare", ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-u", *sys.argv])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--fault-step", type=int, default=40)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()
    if int(os.environ["RANK"]) == args.culprit and "SHM_SIZE" not in os.environ:
        enter_container(64 if args.healthy else 16)

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    loader = DataLoader(Scans(args.steps, args.fault_step * 2), batch_size=2, num_workers=2)
    model = DistributedDataParallel(nn.Linear(256, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for scans in loader:
        loss = model(scans.mean(dim=(1, 2))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
