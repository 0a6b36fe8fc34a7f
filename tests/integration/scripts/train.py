"""A training script for tests of the ways in: rank `--short` has fewer batches than the others, or no rank has.

Started by torchrun or with RANK and friends set; `--spawn N` starts its ranks itself. `--attach` watches from within.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def train(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    init_process_group()
    model = DistributedDataParallel(torch.nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    batches = 37 if dist.get_rank() == options.short and not (options.once and restarted) else 40
    loader = DataLoader(TensorDataset(torch.randn(4 * batches, 10)), batch_size=4, num_workers=options.workers)
    if options.attach:
        import hangwatch

        hangwatch.attach(model, loader)
    for epoch in range(options.epochs):
        for batch, (data,) in enumerate(loader):
            if options.slow and dist.get_rank() == 1 and (epoch, batch) == (0, 5):
                time.sleep(options.slow)
            optimizer.zero_grad()
            model(data).sum().backward()
            optimizer.step()
        dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.5)  # gloo's threads may abort the process if it ends at once
    print(f"rank done, argv {sys.argv[1:]}", flush=True)


def init_process_group() -> None:
    """A restarted job takes a store of its own: torchrun's keeps the addresses that gloo had before the restart.

    Its port lies below those that the kernel gives to connections.
    """
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if not restarts:
        dist.init_process_group("gloo")
        return
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    store = f"tcp://127.0.0.1:{10_000 + (int(os.environ['MASTER_PORT']) + restarts) % 20_000}"
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world_size)


def spawned(rank: int, options: argparse.Namespace) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(options.spawn), "MASTER_ADDR": "127.0.0.1"}
    os.environ["MASTER_PORT"] = str(options.port)
    train(options)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--attach", action="store_true")
    parser.add_argument("--short", type=int, default=-1)
    parser.add_argument("--spawn", type=int, default=0)
    parser.add_argument("--port", type=int, default=0, help="of the spawned ranks")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--once", action="store_true", help="be short in the first generation only")
    parser.add_argument("--slow", type=float, default=0.0)
    options = parser.parse_args()
    if not options.spawn:
        train(options)
        return
    spawn(spawned, args=(options,), nprocs=options.spawn)


if __name__ == "__main__":
    main()
