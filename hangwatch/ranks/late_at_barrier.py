"""What `torch.distributed.monitored_barrier` says of ranks that did not come: on rank 0, which asks each of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

MARK = "failed to pass monitoredBarrier in"
_LATE = re.compile(r"Ranks? (\d[\d, ]*) failed to pass monitoredBarrier in (\d+) ms")


@dataclass(frozen=True)
class Late:
    """`ranks` had not come within `timeout_s`. Without `wait_all_ranks` only the first of them is named."""

    ranks: tuple[int, ...]
    timeout_s: float


def late_at_barrier(text: str) -> Late | None:
    """The ranks that the message names; None for another message."""
    found = _LATE.search(text) if MARK in text else None
    if found is None:
        return None
    return Late(tuple(sorted({int(rank) for rank in re.findall(r"\d+", found[1])})), int(found[2]) / 1000)
