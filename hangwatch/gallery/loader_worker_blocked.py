"""Samples come from a cache, and from a remote store where the cache has none.

One sample of one rank is not in the cache, and the store accepts the connection but never answers. The
loader's worker stands in recv, its rank waits for the batch, the other ranks wait in backward. With --healthy
the store answers after five seconds.
"""

from __future__ import annotations

import argparse
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

Sample = tuple[torch.Tensor, int]


class CachedImages(Dataset[Sample]):
    def __init__(self, size: int, missing: int | None, store: tuple[str, int]) -> None:
        self.size, self.missing, self.store = size, missing, store

    def __len__(self) -> int:
        return self.size

    def fetch(self, index: int) -> bytes:
        with socket.create_connection(self.store) as connection:
            connection.sendall(f"GET {index}\n".encode())
            return connection.recv(1024)

    def __getitem__(self, index: int) -> Sample:
        if index == self.missing:
            self.fetch(index)
        return torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(index)), index % 10


def answer(server: socket.socket, delay: float) -> None:
    connection, _ = server.accept()
    time.sleep(delay)
    connection.sendall(b"image")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fault-step", type=int, default=61)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    server = socket.create_server(("127.0.0.1", 0))
    if args.healthy:
        threading.Thread(target=answer, args=(server, 5.0), daemon=True).start()

    missing = args.fault_step * 8 + 3 if rank == args.culprit else None
    dataset = CachedImages(args.steps * 8, missing, server.getsockname())
    loader = DataLoader(dataset, batch_size=8, num_workers=2)
    network = nn.Sequential(nn.Conv2d(3, 24, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 196, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
