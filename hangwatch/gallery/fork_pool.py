"""One rank cleans the texts of the data set in a pool of processes, every hundred steps anew.

A thread of that rank writes to a shared cache, and holds the cache's lock when the pool is forked. Threads do not
survive a fork, locked locks do: the pool's processes wait for the cache for ever, the rank waits for the pool, and
the others wait in backward. With --healthy the pool's processes are spawned, and come without thread and lock.
"""

from __future__ import annotations

import argparse
import multiprocessing
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CACHE: dict[str, str] = {}
LOCK = threading.Lock()
WRITING = threading.Event()


def write_cache(seconds: float) -> None:
    with LOCK:
        WRITING.set()
        time.sleep(seconds)


def clean(text: str) -> str:
    with LOCK:
        CACHE[text] = text.strip().lower()
    return CACHE[text]


def clean_all(texts: list[str], start_method: str) -> list[str]:
    threading.Thread(target=write_cache, args=(3.0,), name="cache-writer", daemon=True).start()
    WRITING.wait()
    with multiprocessing.get_context(start_method).Pool(2) as pool:
        return pool.map(clean, texts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fault-step", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Bilinear(24, 24, 48))
    optimizer = torch.optim.Adam(model.parameters())
    texts = [f" Text {number} " for number in range(40)]

    for step in range(args.steps):
        loss = model(torch.randn(16, 24), torch.randn(16, 24)).square().mean()
        if rank == args.culprit and step == args.fault_step:
            texts = clean_all(texts, "spawn" if args.healthy else "fork")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dist.barrier()
    print(f"rank {rank} done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
