"""Conditions that ask a generator of random numbers, which gives each rank numbers of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.model import Bypass
from hangwatch.source.syntax import DRAWS

OF_A_DRAW = (
    "draw with the same generator on all ranks: torch.Generator().manual_seed(seed + step), with one seed for all of"
    " them; or let rank 0 draw, and broadcast what came"
)
_DRAW = re.compile(rf"\b({'|'.join(sorted(DRAWS))})\(")


def drawn_at_random(ways: Sequence[Bypass]) -> bool:
    """Each of these conditions is a draw."""
    return bool(ways) and all(_DRAW.search(way.text) for way in ways)
