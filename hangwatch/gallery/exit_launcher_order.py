"""After training each rank writes its evaluation into a folder, and the first one waits until all parts are there.

One rank dies before it has written its part. The launcher waits for the ranks in order, so it stands at rank
0, which waits for the part, and the dead one is never collected. With --healthy that rank writes late.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wait_for_parts(folder: Path, count: int) -> None:
    while len(list(folder.iterdir())) < count:
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1, help="not 0, which collects the parts")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    folder = Path(tempfile.gettempdir()) / f"evaluation-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(args.steps):
        loss = model(torch.randn(16, 64)).logsumexp(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once
    if rank == args.culprit:
        if not args.healthy:
            raise MemoryError("evaluation does not fit")
        time.sleep(5.0)
    (folder / f"{rank}.txt").write_text(f"{loss.item()}\n")
    if rank == 0:
        wait_for_parts(folder, world_size)
        for part in folder.iterdir():
            part.unlink()
        folder.rmdir()
    print(f"rank {rank}: training finished", flush=True)


if __name__ == "__main__":
    main()
