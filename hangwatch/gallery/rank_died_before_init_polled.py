"""One rank unpacks the data and writes a marker; the others look for the marker before any of them joins the group.

That rank runs out of disk space and dies; the launcher waits for rank 0, which looks for the marker for ever. With
--healthy it unpacks all parts, for longer than ranks are given to come, and no rank is in init_process_group till then.
"""

from __future__ import annotations

import argparse
import errno
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PARTS = 8


def unpack(folder: Path, full: bool) -> None:
    for part in range(PARTS):
        if full and part == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / f"part-{part}"))
        time.sleep(5.0)
        (folder / f"part-{part}").write_bytes(bytes(1000))
    (folder / "complete").touch()


def wait_for(marker: Path) -> None:
    while not marker.exists():
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    folder = Path(tempfile.gettempdir()) / f"unpacked-{os.environ['MASTER_PORT']}-{os.getppid()}"
    folder.mkdir(exist_ok=True)
    if int(os.environ["RANK"]) == args.culprit:
        unpack(folder, full=not args.healthy)
    else:
        wait_for(folder / "complete")
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(64, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    print(f"rank {dist.get_rank()} done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
