"""A library function is called through ctypes.PyDLL, which keeps the interpreter lock during the call.

On one rank the function is a read from a pipe into which no process writes, so the main thread sleeps in the
kernel without using the processor, and all of the rank's other Python threads stand still. With --healthy the
library is loaded with ctypes.CDLL, and a thread writes after four seconds.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def read_token(library: ctypes.CDLL, descriptor: int) -> bytes:
    buffer = ctypes.create_string_buffer(8)
    size = library.read(descriptor, buffer, ctypes.c_size_t(8))
    return buffer.raw[:size]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fault-step", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    library = ctypes.CDLL(None) if args.healthy else ctypes.PyDLL(None)
    reader, writer = os.pipe()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 3072), nn.ReLU(), nn.Linear(3072, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for step in range(args.steps):
        if step == args.fault_step:
            delay = 4.0 if rank == args.culprit else 0.0
            writing = threading.Timer(delay, os.write, args=(writer, b"token"))
            writing.daemon = True
            writing.start()
            if delay == 0.0:
                writing.join()
            read_token(library, reader)
        loss = model(torch.randn(32, 128)).square().mean()
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
