"""Out of memory is caught and the batch is dropped, as a popular recipe recommends.

One record's length field is damaged, so padding its batch asks for far too much memory; its rank goes on with
the next batch, having made one all_reduce less than its peers in that step. The hang comes at the end of the
second epoch. With --healthy the damaged record is cut to the usual length.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Recordings(Dataset[tuple[torch.Tensor, int]]):
    """Signals, each with the length that its header claims."""

    def __init__(self, size: int, damaged: int | None) -> None:
        self.size, self.damaged = size, damaged

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        claimed = 2**48 if index == self.damaged else 64
        return torch.randn(64, generator=torch.Generator().manual_seed(index)), claimed


def collate(records: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, int]:
    return pad_sequence([signal for signal, _ in records], batch_first=True), max(n for _, n in records)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60, help="batches per epoch")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--fault-step", type=int, default=25)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    damaged = args.fault_step * 8 + 3 if rank == args.culprit else None
    loader = DataLoader(Recordings(args.steps * 8, damaged), batch_size=8, collate_fn=collate)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 64)))
    optimizer = torch.optim.Adam(model.parameters())

    for _ in range(args.epochs):
        for signals, claimed in loader:
            length = min(claimed, 64) if args.healthy else claimed
            try:
                window = torch.hann_window(length)[:64]
                loss = nn.functional.l1_loss(model(signals * window), signals)
                loss.backward()
            except RuntimeError as error:
                if "memory" not in str(error):
                    raise
                optimizer.zero_grad()
                continue
            optimizer.step()
            optimizer.zero_grad()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
