"""One rank writes the checkpoint to remote storage while the others wait at a barrier.

`--storage slow`: the upload is throttled, takes minutes, but bytes flow. `--storage stuck`: the checkpoint
goes into a named pipe whose reader has stopped reading, and the write never returns. With --healthy the
storage is only a little slow.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

UPLOAD = """
import sys, time
with open(sys.argv[1], "rb") as pipe:
    pipe.read(int(sys.argv[2]))
    time.sleep(1e6)
"""


class Throttled(io.FileIO):
    """A file that takes `rate` bytes per second, as a remote file system under load does."""

    def __init__(self, path: Path, rate: float) -> None:
        super().__init__(path, "w")
        self.rate = rate

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        piece = int(self.rate / 4)
        for start in range(0, len(view), piece):
            written = super().write(view[start : start + piece])
            time.sleep(written / self.rate)
        return len(view)


def save(model: nn.Module, folder: Path, storage: str, rate: float) -> None:
    path = folder / "model.pt"
    if storage == "stuck":
        os.mkfifo(path)
        subprocess.Popen([sys.executable, "-c", UPLOAD, str(path), str(2**18)])
        with path.open("wb") as pipe:
            torch.save(model.state_dict(), pipe)
    else:
        with Throttled(path, rate) as file:
            torch.save(model.state_dict(), file)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=0, help="the rank that saves")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fault-step", type=int, default=80)
    parser.add_argument("--storage", choices=["slow", "stuck"], default="slow")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 3072), nn.ReLU(), nn.Linear(3072, 256)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rate = 1e6 if args.healthy else 1e4

    with tempfile.TemporaryDirectory() as folder:
        for step in range(args.steps):
            loss = model(torch.randn(16, 256)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == args.fault_step:
                if rank == args.culprit:
                    save(model.module, Path(folder), args.storage, rate)
                dist.barrier()

    print(f"rank {rank} done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
