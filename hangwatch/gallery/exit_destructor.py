"""A module keeps its database connection in a global object, whose `__del__` closes it politely.

Closing waits for the other side to close as well. On one rank the other side does not, and that rank's
process stays in `__del__` during the interpreter's finalisation. With --healthy the other side closes after
some seconds.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DATABASE = """
import socket, sys, time
connection = socket.socket(fileno=int(sys.argv[1]))
while connection.recv(4096):
    pass
time.sleep(float(sys.argv[2]))
"""


class Connection:
    """A connection to a database process; `linger` is how long that one takes to close."""

    def __init__(self, linger: float) -> None:
        self.socket, theirs = socket.socketpair()
        command = [sys.executable, "-c", DATABASE, str(theirs.fileno()), str(linger)]
        self.server = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()

    def insert(self, step: int, loss: float) -> None:
        self.socket.sendall(f"{step} {loss}\n".encode())

    def __del__(self) -> None:
        self.socket.shutdown(1)
        self.socket.recv(1)


CONNECTIONS: list[Connection] = []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    CONNECTIONS.append(Connection(linger=0.0 if rank != args.culprit else 5.0 if args.healthy else 1e6))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(args.steps):
        loss = model(torch.randn(16, 64)).logsumexp(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        CONNECTIONS[0].insert(step, loss.item())

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once
    print(f"rank {rank}: training finished", flush=True)


if __name__ == "__main__":
    main()
