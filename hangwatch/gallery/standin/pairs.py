"""Sends and receives: as with NCCL each pair of ranks has a communicator of its own, made when it is first used.

Making it holds the host until both ranks have come. Their work is a broadcast on an inner gloo group of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from .communicator import Communicator
from .streams import Device

FIRST = 32  # numbers of pairs follow those of groups


class Pair(Communicator):
    """The stream between two ranks of a group. `ends` are its ranks there, the lower one first."""

    def __init__(self, device: Device, group: Communicator, store: Any, ends: tuple[int, int], number: int) -> None:
        own = PrefixStore(f"pair{ends[0]}-{ends[1]}", store)
        inner = dist.ProcessGroupGloo(own, ends.index(group.rank), 2, group.never)
        super().__init__(device, inner, number, group.name, group.rank, group.timeout_s)
        self.group, self.ends = group, ends

    @property
    def peer(self) -> int:
        """The other rank in the group."""
        return self.ends[1 - self.ends.index(self.rank)]


class Pairs:
    """The pairs of this process."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._known: dict[tuple[int, tuple[int, int]], Pair] = {}

    def __iter__(self) -> Iterator[Pair]:
        return iter(list(self._known.values()))

    def of(self, group: Communicator, store: Any, peer: int) -> Pair:
        """The pair of this rank and `peer` in a group."""
        ends = (min(group.rank, peer), max(group.rank, peer))
        key = (group.number, ends)
        if key not in self._known:
            self._known[key] = Pair(self._device, group, store, ends, FIRST + len(self._known))
        return self._known[key]

    def clear(self) -> None:
        self._known.clear()
