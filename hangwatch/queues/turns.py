"""How many rounds of a loop lie between two visits to a call that comes once in several of them."""

from __future__ import annotations

from collections.abc import Sequence


def rounds(before: Sequence[int], own: int, round_: int) -> list[int]:
    """How many rounds came before each visit to `own`, and behind the last one."""
    counts = [0]
    for token in before:
        if token == own and counts[-1]:
            counts.append(0)
        counts[-1] += token == round_
    return counts


def sooner_than_ever(before: Sequence[int], own: int, round_: int) -> bool:
    """Whether the order of calls comes to `own` after fewer rounds than each time before."""
    *earlier, last = rounds(before, own, round_)
    return bool(earlier) and last < min(earlier)
