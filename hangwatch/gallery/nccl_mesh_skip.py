"""On the stand-in for NCCL, a mesh of 2 x 2: one rank skips a reduction of its row, where its activations overflowed.

The row's later reductions are paired with those of the round after, in silence, until the loss of all is reported.
Then all hosts wait, and some in calls that all of their members have enqueued. With --healthy no reduction is skipped.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist

from hangwatch.gallery import standin

COLUMNS = 2
REPORT_EVERY = 10


def of_rank(rank: int, world: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """The groups of the rank's row and of its column. Every rank makes all groups, in one order."""
    rows = [dist.new_group(list(range(first, first + COLUMNS))) for first in range(0, world, COLUMNS)]
    columns = [dist.new_group(list(range(column, world, COLUMNS))) for column in range(COLUMNS)]
    return rows[rank // COLUMNS], columns[rank % COLUMNS]


def reduce_activations(partial: torch.Tensor, row: dist.ProcessGroup) -> torch.Tensor:
    if not torch.isfinite(partial).all():
        return torch.zeros_like(partial)
    dist.all_reduce(partial, group=row)
    return partial


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault-step", type=int, default=33)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    standin.register()
    dist.init_process_group(standin.NAME)
    rank = dist.get_rank()
    row, column = of_rank(rank, dist.get_world_size())
    torch.manual_seed(0)
    weights = torch.randn(64, 64) / 64

    for step in range(args.steps):
        inputs = torch.randn(16, 64)
        if step == args.fault_step and rank == args.culprit and not args.healthy:
            inputs[0, 5] = float("inf")
        activations = reduce_activations(inputs @ weights, row)
        dist.all_reduce(weights * 0.0 + activations.mean(), group=column)
        if step % REPORT_EVERY == REPORT_EVERY - 1:
            dist.all_reduce(activations.mean())
        standin.synchronize()  # as loss.item() does

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
