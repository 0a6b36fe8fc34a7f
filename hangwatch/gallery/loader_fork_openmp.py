"""The parent has used its OpenMP threads before the loader's workers are forked, and the workers use them as well.

In the child the thread pool exists on paper only: the first parallel operation waits at a barrier for threads
that were not copied. No batch comes, on no rank. With --healthy the workers use one thread.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

THREADS = 4


class Spectra(Dataset[torch.Tensor]):
    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __len__(self) -> int:
        return 320

    def __getitem__(self, index: int) -> torch.Tensor:
        torch.set_num_threads(self.threads)
        signal = torch.linspace(0, index, 1_000_000)
        return signal.sin().view(1000, 1000).mean(dim=0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--healthy", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(THREADS)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    dataset = Spectra(threads=1 if args.healthy else THREADS)
    scale = dataset[1].abs().max()
    loader = DataLoader(dataset, batch_size=4, num_workers=2)
    model = DistributedDataParallel(nn.Linear(1000, 500))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for spectra in loader:
        loss = model(spectra / scale).square().mean()
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
