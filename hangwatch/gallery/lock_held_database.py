"""Every rank notes its losses in one SQLite database that all of them share.

At one step a rank also notes a milestone, and never commits it: its transaction stays open while it goes on to
train. The next rank that writes waits for the database, and the rank that holds it waits in backward for that one.
With --healthy the milestone is committed after four seconds.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EVERY = 10


class Notes:
    def __init__(self, path: Path, rank: int) -> None:
        self.rank = rank
        self.book = sqlite3.connect(path, timeout=3600)
        self.book.execute("create table if not exists notes (rank, step, loss)")
        self.book.commit()

    def add(self, step: int, loss: float) -> None:
        self.book.execute("insert into notes values (?, ?, ?)", (self.rank, step, loss))


def shared_path() -> Path:
    """A file that all ranks of this job agree on."""
    return Path(tempfile.gettempdir()) / f"notes-{os.environ['MASTER_PORT']}.db"


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
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 1)))
    optimizer = torch.optim.Adam(model.parameters())
    notes = Notes(shared_path(), rank)

    for step in range(args.steps):
        loss = model(torch.randn(16, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        if step % EVERY != rank % EVERY:  # the ranks take turns
            continue
        notes.add(step, loss.item())
        notes.book.commit()
        if rank == args.culprit and 0 <= step - args.fault_step < EVERY:
            notes.add(step, -1.0)
            if args.healthy:
                time.sleep(4)
                notes.book.commit()

    dist.barrier()
    if rank == 0:
        shared_path().unlink(missing_ok=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once
    print(f"rank {rank} done", flush=True)


if __name__ == "__main__":
    main()
