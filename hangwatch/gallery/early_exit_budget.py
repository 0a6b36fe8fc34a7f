"""Training runs until a rank has seen its budget of tokens, then breaks out of the loop.

One rank's documents are longer, so its budget is spent after fewer batches, in the middle of the epoch. It
goes to the barrier behind the loop; the others wait in backward for it. With --healthy the budget is counted
over all ranks.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Documents(Dataset[torch.Tensor]):
    def __init__(self, count: int, length: int) -> None:
        self.count, self.length = count, length

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randint(1, 1000, (self.length,), generator=torch.Generator().manual_seed(index))


class Bigram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.head = nn.Linear(64, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.embedding(tokens[:, :-1]))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def train(rank: int, args: argparse.Namespace) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    torch.manual_seed(0)

    length = 48 if rank == args.culprit else 32
    loader = DataLoader(Documents(args.steps * 4, length), batch_size=4)
    model = DistributedDataParallel(Bigram())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    budget = args.fault_step * 4 * 48
    seen = torch.zeros(1, dtype=torch.long)

    for tokens in loader:
        new = torch.tensor([tokens.numel()])
        if args.healthy:
            dist.all_reduce(new)
            new //= args.ranks
        seen += new
        if seen > budget:
            break
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dist.barrier()
    print(f"rank {rank}: {int(seen)} tokens", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--port", type=int, default=29503)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fault-step", type=int, default=90)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()
    mp.spawn(train, args=(args,), nprocs=args.ranks)


if __name__ == "__main__":
    main()
