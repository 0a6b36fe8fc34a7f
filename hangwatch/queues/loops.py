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


def visits(before: Sequence[int], own: int, round_: int) -> int:
    """How often the order of calls had come to `own` from rounds, each of which has the call `round_`.

    An evaluation makes its call many times, and counts once.
    """
    came = 0
    inside = False
    for token in before:
        if token == own and not inside:
            came, inside = came + 1, True
        elif token == round_:
            inside = False
    return came
