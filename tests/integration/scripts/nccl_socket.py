"""On the stand-in for NCCL: rank 1 asks a server that never answers, and torch's watchdog ends the rank that waits."""

from __future__ import annotations

import socket
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hangwatch.gallery import standin


def ask(server: socket.socket) -> bytes:
    with socket.create_connection(server.getsockname()) as connection:
        return connection.recv(1)


def main() -> None:
    torch.set_num_threads(1)
    standin.register()
    dist.init_process_group(standin.NAME, timeout=timedelta(seconds=20))
    with standin.read_back():
        model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with socket.create_server(("127.0.0.1", 0)) as server:
        for step in range(40):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            standin.synchronize()
            if step == 30 and dist.get_rank() == 1:
                ask(server)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
