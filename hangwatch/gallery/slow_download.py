"""One rank downloads the weights over a slow link while the others wait for it at a barrier.

A few kilobytes come each second: that rank uses hardly any processor time and writes nothing, and yet it gets on. With
--healthy the link is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import threading
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIZE = 100_000  # bytes
PIECE_S = 0.25


def serve(server: socket.socket, rate: float) -> None:
    """A stand-in for a model hub: it sends `rate` bytes a second."""
    while True:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(4096)
            connection.sendall(f"HTTP/1.0 200 OK\r\nContent-Length: {SIZE}\r\n\r\n".encode())
            piece = max(int(rate * PIECE_S), 1)
            for start in range(0, SIZE, piece):
                connection.sendall(bytes(min(piece, SIZE - start)))
                time.sleep(PIECE_S)


def download(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/weights.bin") as answer:
        found: bytes = answer.read()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(64, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(100):
        if step == 50:
            if rank == args.culprit:
                server = socket.create_server(("127.0.0.1", 0))
                rate = SIZE / (4.0 if args.healthy else 20.0)
                threading.Thread(target=serve, args=(server, rate), daemon=True).start()
                download(server.getsockname()[1])
            dist.barrier()
        loss = model(torch.randn(16, 64)).pow(2).mean()
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
