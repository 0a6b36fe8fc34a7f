"""Loaders for `hangwatch doctor loader`, each with one thing wrong, and some with nothing wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset
from torch.utils.data.distributed import DistributedSampler


class Numbers(Dataset[torch.Tensor]):
    """101 samples, a tensor of eight each."""

    def __init__(self, count: int = 101) -> None:
        self.count = count
        self.kept: list[Any] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((8,), float(index))


def good() -> DataLoader[torch.Tensor]:
    data = Numbers()
    return DataLoader(data, batch_size=4, sampler=DistributedSampler(data), num_workers=1)


def own_data(rank: int) -> DataLoader[torch.Tensor]:
    """Each rank has files of its own: the same indices are other samples."""
    return DataLoader(Subset(Numbers(200), range(rank * 100, rank * 100 + 100)), batch_size=4)


def uneven(rank: int, world_size: int) -> DataLoader[torch.Tensor]:
    return DataLoader(Subset(Numbers(), range(rank, 101, world_size)), batch_size=1)


def copies() -> DataLoader[torch.Tensor]:
    return DataLoader(Numbers(), batch_size=4, shuffle=True)


class Broken(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 50:
            raise ValueError("sample 50 is damaged")
        return super().__getitem__(index)


def broken() -> DataLoader[torch.Tensor]:
    return DataLoader(Broken(), batch_size=4, num_workers=1)


def skipping() -> DataLoader[Any]:
    """Its collate_fn drops what it does not like."""

    def collate(samples: list[torch.Tensor]) -> Any:
        kept = [sample for sample in samples if sample[0] % 10 != 3]
        return torch.stack(kept) if len(kept) > 3 else None if not kept else torch.stack(kept)

    return DataLoader(Numbers(), batch_size=4, collate_fn=collate)


def nones() -> DataLoader[Any]:
    return DataLoader(Numbers(), batch_size=4, collate_fn=lambda samples: None)


class Racing(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([time.monotonic_ns()])


def racing() -> DataLoader[torch.Tensor]:
    return DataLoader(Racing(), batch_size=4)


class Stream(IterableDataset[torch.Tensor]):
    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(40.0))


def undivided() -> DataLoader[torch.Tensor]:
    """Every worker of every rank gives everything."""
    return DataLoader(Stream(), batch_size=4, num_workers=2)


class Growing(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        self.kept.append(bytearray(b"x" * (1 << 20)))
        self.kept.append(open("/dev/null"))  # noqa: PTH123, SIM115 - left open
        return super().__getitem__(index)


def growing() -> DataLoader[torch.Tensor]:
    return DataLoader(Growing(), batch_size=4)


class Stalling(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(1.5 if index == 60 else 0.0)
        return super().__getitem__(index)


def stalling() -> DataLoader[torch.Tensor]:
    return DataLoader(Stalling(), batch_size=4)


class Stuck(DistributedSampler[Any]):
    def set_epoch(self, epoch: int) -> None:
        """Forgets it."""


def same_order(rank: int, world_size: int) -> DataLoader[torch.Tensor]:
    data = Numbers()
    return DataLoader(data, batch_size=4, sampler=Stuck(data, world_size, rank, shuffle=True))


def never() -> DataLoader[torch.Tensor]:
    time.sleep(600)
    return good()


def no_loader() -> int:
    return 7
