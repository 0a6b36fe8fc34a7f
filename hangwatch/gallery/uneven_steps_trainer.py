"""A trainer class with autocast, gradient accumulation and a filter that drops bad samples, rank by rank.

DistributedSampler hands out equal shares, but the filter behind it drops more batches on one rank, so that
rank makes fewer optimizer steps. It waits at the end of the epoch while the others wait in backward. With
--healthy the same bad samples are masked in the loss instead of being dropped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

Batch = tuple[torch.Tensor, ...]


class Trainer:
    def __init__(self, loader: DataLoader[Batch], accumulate: int, mask: bool) -> None:
        self.loader = loader
        self.accumulate = accumulate
        self.mask = mask
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 3072), nn.GELU(), nn.Linear(3072, 8)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu", enabled=False)

    def batches(self) -> Iterator[Batch]:
        for features, labels in self.loader:
            if self.mask or bool((labels >= 0).all()):
                yield features, labels

    def training_step(self, number: int, features: torch.Tensor, labels: torch.Tensor) -> None:
        last = (number + 1) % self.accumulate == 0
        with contextlib.nullcontext() if last else self.model.no_sync():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = self.model(features)
                loss = nn.functional.cross_entropy(logits, labels, ignore_index=-1)
            self.scaler.scale(loss.nan_to_num() / self.accumulate).backward()
        if last:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()

    def finish_epoch(self, epoch: int) -> None:
        dist.barrier()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} finished", flush=True)

    def fit(self, epochs: int) -> None:
        for epoch in range(epochs):
            for number, (features, labels) in enumerate(self.batches()):
                self.training_step(number, features, labels)
            self.finish_epoch(epoch)


def train(rank: int, args: argparse.Namespace) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    torch.manual_seed(0)

    batch_size, batches = 16, args.steps + 20
    size = batches * batch_size * args.ranks
    labels = torch.randint(0, 8, (size,))
    labels[[args.culprit + args.ranks * batch_size * index for index in range(args.steps, batches)]] = -1
    dataset = TensorDataset(torch.randn(size, 64), labels)
    sampler: DistributedSampler[Batch] = DistributedSampler(dataset, num_replicas=args.ranks, rank=rank, shuffle=False)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)

    Trainer(loader, accumulate=2, mask=args.healthy).fit(args.epochs)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--port", type=int, default=29501)
    parser.add_argument("--steps", type=int, default=80, help="batches that the filter leaves to the short rank")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()
    mp.spawn(train, args=(args,), nprocs=args.ranks)


if __name__ == "__main__":
    main()
