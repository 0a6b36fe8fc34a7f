"""A loop that a rank left, or went on with, when the others did not: told by how the same loop ended before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

RARE = 2  # a call that ended so few loops before comes after an epoch; one that comes more often is of the loop


def left_as_before(before: Sequence[int], own: int, usual: int) -> int:
    """How often the order of calls had left its loop to `own` from where it now does, and the others go on to `usual`.

    0 where it never went on to `usual` there, or never left to `own`: that is no end of a loop.
    """
    if not before:
        return 0
    behind = [other for one, other in pairwise(before) if one == before[-1]]
    return behind.count(own) if 0 < behind.count(own) < behind.count(usual) else 0


def cut_short(before: Sequence[int], own: int, *, lost: bool) -> bool:
    """Whether the loop that is left to `own` now had made as many rounds each time before, and has made fewer now.

    The oldest of those times does not count where older calls are `lost`: its beginning may be among them.
    """
    lengths, rounds = list[int](), 0
    for one, other in pairwise(before):
        rounds += one == before[-1]
        if one == before[-1] and other == own:
            lengths.append(rounds)
            rounds = 0
    known = set(lengths[1:] if lost else lengths)
    return len(known) == 1 and rounds + 1 < known.pop()
