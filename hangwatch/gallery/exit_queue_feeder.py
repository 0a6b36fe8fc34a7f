"""Predictions are put into a multiprocessing queue, from which a plotting process takes what it needs.

On one rank that process has ended and the queue is still full. On the way out the interpreter waits for the
queue's feeder thread, which waits for a reader. With --healthy the rank takes out what is left.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from multiprocessing.queues import Queue

import torch
import torch.distributed as dist
from torch import nn


def plot(predictions: Queue[list[float]], wanted: int) -> None:
    for _ in range(wanted):
        predictions.get()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    predictions: Queue[list[float]] = context.Queue()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    wanted = args.steps // 2 if rank == args.culprit else args.steps
    plotter = context.Process(target=plot, args=(predictions, wanted), daemon=True)
    plotter.start()

    model = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(args.steps):
        outputs = model(torch.randn(16, 64))
        optimizer.zero_grad()
        outputs.square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        predictions.put(outputs[0].tolist())

    plotter.join()
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once
    if args.healthy:
        for _ in range(args.steps - wanted):
            predictions.get()
        time.sleep(4.0)
    print(f"rank {rank}: training finished", flush=True)


if __name__ == "__main__":
    main()
