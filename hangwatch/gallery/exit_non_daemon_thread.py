"""Training is over and the group destroyed, but one rank's process stays.

It started a heartbeat thread that is not a daemon and whose stop event is never set. The interpreter waits for
it in threading._shutdown for ever. With --healthy the event is set, and the thread ends after its last long
nap.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from tempfile import gettempdir

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def beat(path: Path, stop: threading.Event) -> None:
    while not stop.is_set():
        path.write_text(f"{time.time()}\n")
        time.sleep(1.0)
    time.sleep(4.0)
    path.unlink()


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
    stop = threading.Event()
    if rank == args.culprit:
        path = Path(gettempdir()) / f"heartbeat-{threading.get_native_id()}"
        threading.Thread(target=beat, args=(path, stop), name="heartbeat").start()

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 3072), nn.ReLU(), nn.Linear(3072, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(args.steps):
        loss = nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(0, 10, (32,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once
    if args.healthy:
        stop.set()
    print(f"rank {rank}: training finished", flush=True)


if __name__ == "__main__":
    main()
