"""Every rank sends its metrics to a collector over TCP and waits for the acknowledgement.

The collector takes one rank's connection and never answers. That rank stands in recv(), in its own code,
without using the processor; the others wait in backward for it. With --healthy the answer takes four seconds.
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


def collect(server: socket.socket, delay: float | None) -> None:
    """A stand-in for the metrics service: it reads, and answers after `delay` seconds or never."""
    kept = []
    while True:
        connection, _ = server.accept()
        kept.append(connection)
        connection.recv(1024)
        if delay is not None:
            time.sleep(delay)
            connection.sendall(b"ok")


def push_metrics(address: tuple[str, int], loss: float) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(f"loss {loss}".encode())
        connection.recv(2)


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
    torch.manual_seed(rank)
    server = socket.create_server(("127.0.0.1", 0))
    delay = 0.0 if rank != args.culprit else 4.0 if args.healthy else None
    threading.Thread(target=collect, args=(server, delay), daemon=True).start()

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(args.steps):
        inputs = torch.randn(16, 64)
        loss = model(inputs).pow(2).mean()
        optimizer.zero_grad()
        if step > 0 and step % args.fault_step == 0:
            push_metrics(server.getsockname(), loss.item())
        loss.backward()
        optimizer.step()
    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
