"""Where ranks synchronise their gradients, and what mends ranks that do so at unlike times."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.model import Frame
from hangwatch.stacks.activity import Within

ALIKE = "let all ranks accumulate alike: reduce what decides it (a number of tokens, a size) before"


def backward_place(case: Case, group: str = "") -> Frame | None:
    """The one line from which all ranks that wait for gradients, of that group, called backward; None for several."""
    inside = (
        case.blocked[view.rank].where
        for view in case
        if view.rank in case.blocked and Within.BACKWARD in view.now.within
        if not group or waits_in(case, view.rank, group)
    )
    lines = {frame for frame in inside if frame is not None}
    return lines.pop() if len(lines) == 1 else None


def waits_in(case: Case, rank: int, name: str) -> bool:
    """`rank` waits in a call of that group."""
    group = case.blocked[rank].group
    return group is not None and group.name == name
