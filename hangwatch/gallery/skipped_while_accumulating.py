"""A batch whose loss is not finite is left out, in a training that accumulates gradients.

The rank counts the batches that it has accumulated, and this one not: from there on it reduces its gradients a batch
later than the others. No collective is due in the batch that was left out, so that nothing shows it there. With
--healthy all ranks leave the batch out, for they ask each other.
"""

from __future__ import annotations

import argparse
import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fault-step", type=int, default=41)
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    batch_size, accumulate = 8, 4
    images = torch.randn(args.steps * batch_size, 96)
    if rank == args.culprit:
        images[args.fault_step * batch_size] = float("inf")
    loader = DataLoader(TensorDataset(images, torch.randint(0, 10, (len(images),))), batch_size=batch_size)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(96, 2048), nn.ReLU(), nn.Linear(2048, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    kept = 0
    for inputs, labels in loader:
        last = kept + 1 == accumulate
        with contextlib.nullcontext() if last else model.no_sync():
            loss = nn.functional.cross_entropy(model(inputs), labels)
            bad = not torch.isfinite(loss)
            if args.healthy:
                votes = torch.tensor(float(bad))
                dist.all_reduce(votes, op=dist.ReduceOp.MAX)
                bad = bool(votes.item())
            if bad:
                continue
            (loss / accumulate).backward()
        kept += 1
        if last:
            optimizer.step()
            optimizer.zero_grad()
            kept = 0

    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
