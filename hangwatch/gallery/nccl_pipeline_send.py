"""On the stand-in for NCCL: a pipeline whose middle stage leaves out a send, for which the next stage waits.

With --healthy no send is left out, and the device of that stage begins with a kernel of six seconds.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist

from hangwatch.gallery import standin


def stage(rank: int, last: int, batch: int, left_out: bool) -> None:
    """Receive what the stage before made, and send it on."""
    activations = torch.full((16, 64), float(batch))
    if rank > 0:
        dist.recv(activations, rank - 1)
    standin.kernel(0.01)
    if rank < last and not left_out:
        dist.send(activations, rank + 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--batches", type=int, default=120)
    parser.add_argument("--fault-batch", type=int, default=60)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    standin.register()
    dist.init_process_group(standin.NAME)
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    if args.healthy and rank == args.culprit:
        standin.kernel(6.0)

    for batch in range(args.batches):
        left_out = rank == args.culprit and batch == args.fault_batch and not args.healthy
        stage(rank, last, batch, left_out)
        if batch % 10 == 9:
            standin.synchronize()  # as reading the loss does

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
