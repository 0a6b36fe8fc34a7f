"""DDP over an IterableDataset whose files are dealt out to the ranks, two loader workers per rank.

One rank's files hold fewer records than the others'. No rank can know before the end, since such a dataset has
no length. That rank's loop ends first and it waits in the all_reduce of the epoch's metrics; the others still
wait for its gradients. With --healthy every rank stops after the number of batches that all of them surely
have.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

Example = tuple[torch.Tensor, torch.Tensor]


class RecordFiles(IterableDataset[Example]):
    """Streams this rank's files; each entry of `files` is the number of records in one."""

    def __init__(self, files: list[int]) -> None:
        self.files = files

    def __iter__(self) -> Iterator[Example]:
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        for number in range(first, len(self.files), stride):
            generator = torch.Generator().manual_seed(number)
            for _ in range(self.files[number]):
                features = torch.randn(96, generator=generator)
                yield features, features[:4].sum()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--steps", type=int, default=96, help="batches of the rank that has least")
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)

    batch_size = 4
    full = (args.steps + 8) * batch_size // 4
    files = [full] * 4
    if rank == args.culprit:
        files = [args.steps * batch_size // 4] * 4
    loader = DataLoader(RecordFiles(files), batch_size=batch_size, num_workers=2)

    model = DistributedDataParallel(nn.Sequential(nn.Linear(96, 3072), nn.Tanh(), nn.Linear(3072, 1)))
    optimizer = torch.optim.Adam(model.parameters())
    total = torch.zeros(1)

    batches: Iterator[list[torch.Tensor]] = iter(loader)
    if args.healthy:
        batches = itertools.islice(batches, args.steps)
    for features, target in batches:
        loss = nn.functional.mse_loss(model(features).squeeze(1), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()

    everything = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(everything, total)
    if rank == 0:
        print("loss of the epoch per rank:", [round(float(value), 2) for value in everything])
    dist.destroy_process_group()
    time.sleep(0.1)  # gloo's threads may abort the process if it ends at once


if __name__ == "__main__":
    main()
