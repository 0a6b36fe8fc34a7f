"""A task of a Slurm job trains with the RANK and WORLD_SIZE that the job's script has set.

The script and the scheduler disagree: WORLD_SIZE counts more processes than `--ntasks` starts, or RANK was set
before srun, so that every task has the same one. The tasks wait in init_process_group for ranks that the launch
does not have. In the look-alike both say the same.
"""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    torch.set_num_threads(1)
    print(f"task {os.environ.get('SLURM_PROCID')} is rank {os.environ['RANK']}", flush=True)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Conv1d(2, 8, 3), nn.ReLU(), nn.Conv1d(8, 1, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(50):
        optimizer.zero_grad()
        model(torch.randn(4, 2, 32)).square().mean().backward()
        optimizer.step()

    dist.barrier()
    print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
