"""On the stand-in for NCCL: a captured graph is replayed, which no record tells of; one rank leaves the loop early.

With --healthy all ranks replay it as often, and one replay takes six seconds on the culprit's device.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist

from hangwatch.gallery import standin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    standin.register()
    dist.init_process_group(standin.NAME)
    rank = dist.get_rank()
    gradients = torch.ones(4096)
    dist.all_reduce(gradients)  # before the capture, as torch asks for
    standin.synchronize()

    graph = standin.Graph()
    with graph.capture():
        standin.kernel(0.02)
        dist.all_reduce(gradients)
        dist.all_reduce(gradients)

    short = rank == args.culprit and not args.healthy
    for step in range(args.steps - 1 if short else args.steps):
        if args.healthy and rank == args.culprit and step == args.steps // 2:
            standin.kernel(6.0)
        graph.replay()
        if step % 10 == 9:
            standin.synchronize()  # as reading the loss does

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
