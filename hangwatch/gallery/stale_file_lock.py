"""The first rank that comes prepares the data set under a lock file, the others wait until the file is gone.

The lock file was left behind by a process that was killed, so every rank waits and none prepares anything.
With --healthy the process that holds the lock still lives, and removes it after some seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.file_baton import FileBaton

PREPARE = """
import os, sys, time
lock = os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
os.remove(sys.argv[1])
"""


def interrupted_run(lock: Path, survives: bool) -> None:
    """What was here before: a process that took the lock, and was killed or not."""
    process = subprocess.Popen(
        [sys.executable, "-c", PREPARE, str(lock), "6" if survives else "1e6"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    if not survives:
        process.kill()
        process.wait()


def prepare(folder: Path) -> torch.Tensor:
    baton = FileBaton(str(folder / "prepare.lock"))
    data = folder / "data.pt"
    if baton.try_acquire():
        try:
            torch.save(torch.randn(800, 64), data)
        finally:
            baton.release()
    else:
        baton.wait()
    return torch.load(data) if data.exists() else torch.randn(800, 64)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    names: list[str | None] = [None]
    if rank == 0:
        names = [tempfile.mkdtemp(prefix="dataset-")]
        interrupted_run(Path(str(names[0])) / "prepare.lock", survives=args.healthy)
    dist.broadcast_object_list(names, src=0)

    data = prepare(Path(str(names[0])))
    model = DistributedDataParallel(nn.Linear(64, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in data.split(8):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.barrier()
    print(f"rank {rank} done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
