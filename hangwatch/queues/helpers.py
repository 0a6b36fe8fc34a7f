"""Helpers of the program, which make calls for several places of it: their line alone does not tell where a rank is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from hangwatch.model import Frame
from hangwatch.stacks.frames import origin

from .model import Call
from .names import path_of


def with_callers(calls: Sequence[Call]) -> list[Call]:
    """The calls, in their order; those of a helper with the line behind its own at which their paths differ."""
    paths: dict[Frame, set[tuple[Frame, ...]]] = {}
    for call in calls:
        if call.where is not None:
            paths.setdefault(call.where, set()).add(_outwards(call))
    depths = {where: _where_apart(found) for where, found in paths.items() if len(found) > 1}
    return [replace(call, caller=_caller(call, depths)) if call.where in depths else call for call in calls]


def _outwards(call: Call) -> tuple[Frame, ...]:
    """The user's lines behind the one that made the call, the innermost first."""
    path = path_of(call)[::-1]
    behind = path[path.index(call.where) + 1 :] if call.where in path else []
    return tuple(frame for frame in behind if origin(frame.file) == "user")


def _where_apart(paths: set[tuple[Frame, ...]]) -> int:
    """How far out the first line is that not all of them have."""
    columns = enumerate(zip_longest(*paths))
    return next((depth for depth, column in columns if len(set(column)) > 1), 0)


def _caller(call: Call, depths: dict[Frame, int]) -> Frame | None:
    path, depth = _outwards(call), depths[call.where] if call.where is not None else 0
    return path[depth] if depth < len(path) else None
