"""Videos are decoded by a program of its own, from whose output the loader's worker reads.

In one rank the decoder stalls in the middle of a frame, without ending, so the worker reads for ever. The
worker is spawned and persistent, the data set is iterable. With --healthy the decoder goes on after five
seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

FRAME = 256
DECODER = """
import sys, time
frames, stall, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
for number in range(frames):
    if number == stall:
        sys.stdout.buffer.write(bytes(100))
        sys.stdout.buffer.flush()
        time.sleep(pause)
        sys.stdout.buffer.write(bytes(156))
    else:
        sys.stdout.buffer.write(bytes([number % 256]) * 256)
"""


class Videos(IterableDataset[torch.Tensor]):
    def __init__(self, frames: int, stall: int, pause: float) -> None:
        self.frames, self.stall, self.pause = frames, stall, pause

    def __iter__(self) -> Iterator[torch.Tensor]:
        command = [sys.executable, "-c", DECODER, str(self.frames), str(self.stall), str(self.pause)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as decoder:
            assert decoder.stdout is not None
            while frame := decoder.stdout.read(FRAME):
                yield torch.frombuffer(bytearray(frame), dtype=torch.uint8).float() / 255


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--fault-step", type=int, default=61)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    stall = args.fault_step * 4 + 1 if rank == args.culprit else -1
    videos = Videos(args.steps * 4, stall, 5.0 if args.healthy else 1e6)
    loader = DataLoader(videos, batch_size=4, num_workers=1, persistent_workers=True, multiprocessing_context="spawn")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(FRAME, 1024), nn.ReLU(), nn.Linear(1024, FRAME)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for _ in range(args.epochs):
        for frames in loader:
            loss = nn.functional.mse_loss(model(frames), frames)
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
