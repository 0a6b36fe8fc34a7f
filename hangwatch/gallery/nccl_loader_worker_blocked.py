"""On the stand-in for NCCL: a loader worker of one rank waits for a store that never answers.

Its rank waits for the batch; the hosts of the others wait for their streams. With --healthy the store answers after
four seconds.
"""

from __future__ import annotations

import argparse
import socket
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from hangwatch.gallery import standin

Sample = tuple[torch.Tensor, torch.Tensor]


class Stored(Dataset[Sample]):
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
        return torch.full((64,), index / self.size), torch.ones(1)


def answer(server: socket.socket, delay: float) -> None:
    connection, _ = server.accept()
    time.sleep(delay)
    connection.sendall(b"sample")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fault-step", type=int, default=61)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds until the stand-in's watchdog aborts")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    standin.register()
    dist.init_process_group(standin.NAME, timeout=timedelta(seconds=args.timeout))
    rank = dist.get_rank()
    torch.manual_seed(0)

    server = socket.create_server(("127.0.0.1", 0))
    if args.healthy:
        threading.Thread(target=answer, args=(server, 4.0), daemon=True).start()
    missing = args.fault_step * 8 + 3 if rank == args.culprit else None
    loader = DataLoader(Stored(args.steps * 8, missing, server.getsockname()), batch_size=8, num_workers=2)
    with standin.read_back():
        model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        standin.synchronize()  # as loss.item() does

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
