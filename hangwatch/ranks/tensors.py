"""What a call brings, as the boards and torch's dumps both record it: the sizes and types of its tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable

_FULL_NAMES = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32"}


def elements(sizes: Iterable[Iterable[int]]) -> int | None:
    """The elements of all tensors, of which one without dimensions has one; None where none are recorded."""
    counts = [math.prod(size) for size in sizes]
    return sum(counts) if counts else None


def dtype_name(recorded: str) -> str:
    """One name of a type: torch and its backends write `torch.float32`, `Float` and `float`."""
    bare = recorded.lower().removeprefix("torch.")
    return _FULL_NAMES.get(bare, bare)
