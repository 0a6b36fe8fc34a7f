"""What a call brings, as the boards and torch's dumps both record it: the sizes and types of its tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable

_BYTES = {"bool": 1, "byte": 1, "uint8": 1, "char": 1, "int8": 1, "short": 2, "int16": 2, "float16": 2, "bfloat16": 2}
_BYTES |= {"float32": 4, "int32": 4, "float64": 8, "int64": 8}  # by full name
_FULL_NAMES = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32"}


def elements(sizes: Iterable[Iterable[int]]) -> int | None:
    """The elements of all tensors, of which one without dimensions has one; None where none are recorded."""
    counts = [math.prod(size) for size in sizes]
    return sum(counts) if counts else None


def dtype_name(recorded: str) -> str:
    """One name of a type: torch and its backends write `torch.float32`, `Float` and `float`."""
    bare = recorded.lower().removeprefix("torch.")
    return _FULL_NAMES.get(bare, bare)


def width(recorded: str) -> int | None:
    """The bytes of an element of that type; None for a type that is not known."""
    return _BYTES.get(dtype_name(recorded))
