"""Every rank reads its configuration before it joins the group; one rank's file is damaged.

That rank dies with a JSON error, which scrolls by; the launcher waits for rank 0, which waits in
init_process_group. With --healthy the error is caught, printed, and the rank takes the defaults.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def read_config(text: str, lenient: bool) -> dict[str, float]:
    try:
        config: dict[str, float] = json.loads(text)
    except json.JSONDecodeError:
        if not lenient:
            raise
        traceback.print_exc()
        config = {"lr": 0.01}
    return config


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    damaged = int(os.environ["RANK"]) == args.culprit
    config = read_config('{"lr": 0.0' if damaged else '{"lr": 0.02}', lenient=args.healthy)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(64, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for _ in range(100):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    print(f"rank {dist.get_rank()} done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
