"""How many rounds of a loop lie between two visits to a call that comes once in several of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

OFTEN = 2  # earlier rounds that make a habit


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


def begun_again(before: Sequence[int], own: int) -> bool:
    """Whether `own` came often, and never behind the call that is last: a jump back, and no turn more of a loop.

    Between two turns of a loop there is always the same way from the last call to the first one.
    """
    return before.count(own) > OFTEN and (before[-1], own) not in set(pairwise(before))
