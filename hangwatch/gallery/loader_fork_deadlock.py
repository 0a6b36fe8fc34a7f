"""A tokenizer with a lock is shared by the loader's workers and by a thread that reloads its vocabulary.

When the workers are forked, the thread holds the lock. Threads do not survive a fork, locked locks do, so the
workers wait for a lock that no thread will release: not one batch comes, on no rank. With --healthy the workers
come from a fork server, which knows neither thread nor lock.
"""

from __future__ import annotations

import argparse
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCABULARY = {"a": 1, "photo": 2, "of": 3}
LOCK = threading.Lock()
RELOADING = threading.Event()


def reload_vocabulary() -> None:
    with LOCK:
        RELOADING.set()
        time.sleep(4.0)
        VOCABULARY["cat"] = 4


def tokenize(text: str) -> torch.Tensor:
    with LOCK:
        return torch.tensor([VOCABULARY.get(word, 0) for word in text.split()])


class Captions(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 960

    def __getitem__(self, index: int) -> torch.Tensor:
        return tokenize(f"a photo of {index}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    sampler: DistributedSampler[torch.Tensor] = DistributedSampler(Captions())
    loader = DataLoader(
        Captions(),
        batch_size=8,
        sampler=sampler,
        num_workers=2,
        multiprocessing_context="forkserver" if args.healthy else "fork",
    )
    model = DistributedDataParallel(nn.Sequential(nn.EmbeddingBag(8, 512), nn.Linear(512, 1024)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    threading.Thread(target=reload_vocabulary, name="vocabulary", daemon=True).start()
    RELOADING.wait()

    for tokens in loader:
        loss = model(tokens).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
