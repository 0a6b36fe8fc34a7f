"""A model sharded with fully_shard is saved by one rank only: `if rank == main: torch.save(...)`.

Collecting the full state dict gathers every parameter from all ranks, so the main rank is alone in an
all_gather, while the others wait at the barrier behind. With --healthy all ranks collect and the main rank
writes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def build() -> nn.Module:
    blocks = [nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(3)]
    return nn.Sequential(*blocks, nn.Linear(256, 8))


def save(model: nn.Module, path: Path, write: bool) -> None:
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if write:
        torch.save(state, path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=0, help="the rank that saves")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fault-step", type=int, default=30)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = build()
    for block in model.children():
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    with tempfile.TemporaryDirectory() as folder:
        for step in range(args.steps):
            loss = nn.functional.cross_entropy(model(torch.randn(8, 256)), torch.randint(0, 8, (8,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == args.fault_step and (rank == args.culprit or args.healthy):
                save(model, Path(folder) / "model.pt", write=rank == args.culprit)
                print(f"rank {rank}: checkpoint at step {step}", flush=True)
            if step == args.fault_step:
                dist.barrier()

    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
