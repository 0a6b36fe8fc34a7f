"""Gradients are accumulated until the rank itself has seen so many tokens.

The texts of one rank's shard become short at some batch: from there on it needs more batches for its tokens, and keeps
its gradients where the others reduce theirs. With --healthy the texts become short just as well, and the tokens of all
ranks are counted together.
"""

from __future__ import annotations

import argparse
import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

BATCH = 4  # texts
LONG, SHORT = 48, (10, 22, 14)  # tokens of a text; those of one batch are equally long


class Texts(Dataset[torch.Tensor]):
    """One shard, whose texts are short from some place on."""

    def __init__(self, size: int, short_from: int) -> None:
        self.size, self.short_from = size, short_from

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        length = LONG if index < self.short_from else SHORT[index // BATCH % len(SHORT)]
        return torch.randint(0, 500, (length,), generator=torch.Generator().manual_seed(index))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fault-step", type=int, default=40)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    budget = 4 * BATCH * LONG  # tokens of a rank between two optimizer steps
    short_from = (args.fault_step if rank == args.culprit else args.steps) * BATCH
    loader = DataLoader(Texts(args.steps * BATCH, short_from), batch_size=BATCH)
    network = nn.Sequential(nn.EmbeddingBag(500, 64), nn.Linear(64, 2048), nn.GELU(), nn.Linear(2048, 500))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    seen = 0
    for tokens in loader:
        seen += tokens.numel()
        enough = seen >= budget
        if args.healthy:
            everywhere = torch.tensor(seen)
            dist.all_reduce(everywhere)
            enough = everywhere.item() >= budget * world_size
        with contextlib.nullcontext() if enough else model.no_sync():
            nn.functional.cross_entropy(model(tokens), tokens[:, 0]).backward()
        if enough:
            optimizer.step()
            optimizer.zero_grad()
            seen = 0

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
