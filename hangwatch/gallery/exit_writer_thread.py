"""Metrics are written by a background thread that takes them from a queue, until it finds None.

One rank ends without putting None into the queue, so the thread waits in Queue.get for ever and the process
with it, although training is over. With --healthy None is sent, and the writer only needs a few seconds to
finish its backlog.
"""

from __future__ import annotations

import argparse
import os
import queue
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

Metric = tuple[int, float]


class MetricWriter:
    """Keeps slow storage away from the training loop."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.queue: queue.Queue[Metric | None] = queue.Queue()
        self.written: list[Metric] = []
        self.thread = threading.Thread(target=self.drain, name="metric-writer")
        self.thread.start()

    def drain(self) -> None:
        while (metric := self.queue.get()) is not None:
            time.sleep(self.delay)
            self.written.append(metric)

    def close(self) -> None:
        self.queue.put(None)


def train(rank: int, args: argparse.Namespace) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    torch.manual_seed(rank)
    writer = MetricWriter(delay=0.05 if args.healthy else 0.001)

    model = DistributedDataParallel(nn.LSTM(32, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(args.steps):
        output, _ = model(torch.randn(6, 8, 32))
        loss = output.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.queue.put((step, loss.item()))

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once
    if rank != args.culprit or args.healthy:
        writer.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--port", type=int, default=29502)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()
    mp.spawn(train, args=(args,), nprocs=args.ranks)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
