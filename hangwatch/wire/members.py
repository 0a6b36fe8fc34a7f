"""Ranks as short text, groups by a short id: what a node sends every second must not list 10,000 members."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

MOST_MEMBERS = 1 << 20  # "0-999999999" must not fill the reader's memory


def text(ranks: Iterable[int]) -> str:
    """Ranks in their order, runs as ranges: (0, 1, 2, 8, 7) is "0-2,8,7"."""
    found: list[list[int]] = []
    for rank in ranks:
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def parse(ranges: str) -> tuple[int, ...]:
    """The ranks that `text` was made from. Raises ValueError for other texts and for more than `MOST_MEMBERS` ranks."""
    return tuple(rank for run in runs(ranges) for rank in run)


def runs(ranges: str) -> list[range]:
    """The same as ranges, which takes no memory. Raises ValueError as `parse` does."""
    found: list[range] = []
    left = MOST_MEMBERS
    for part in filter(None, ranges.split(",")):
        first, dash, last = part.partition("-")
        low, high = _number(first), _number(last if dash else first)
        if not 0 <= high - low < left:
            raise ValueError(f"not a range of ranks: {part[:40]!r}")
        found.append(range(low, high + 1))
        left -= high - low + 1
    return found


def identifier(name: str, members: Sequence[int]) -> str:
    """A short id for the group of this name and these members, the same on every node."""
    return hashlib.sha256(f"{name}\0{text(members)}".encode("utf-8", "replace")).hexdigest()[:12]


def _number(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise ValueError(f"not a rank: {digits[:40]!r}")
    return int(digits)
