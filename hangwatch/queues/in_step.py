"""Calls that are more in one step than in any before: of live ranks the step of each call is known.

The order of calls alone cannot tell a part of a step that was made once more from the next step after a part that was
left out: both go on with the same calls. The number of the step does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .model import Lane
from .readings import Kind, Reading
from .turns import OFTEN


def more_than_ever(lane: Lane, row: Sequence[int], usual: Sequence[int], place: int) -> Reading | None:
    """The calls from `place` on as added ones, if they are more than in every step before; else None.

    Where their number changes from step to step, all ranks may make more of them in this one.

    `row` are the last calls of `lane`, as numbers for what they are.
    """
    steps = lane.steps[len(lane) - len(row) :] if len(lane.steps) == len(lane) else None
    if steps is None or not place or steps[place] < 0 or steps[place] != steps[place - 1]:
        return None
    own, now = row[place], steps[place]
    times = Counter(step for token, step in zip(row, steps, strict=True) if token == own)
    before = [count for step, count in times.items() if 0 <= step < now and step != steps[0]]
    if len(before) < OFTEN or len(set(before)) > 1 or times[now] <= before[0]:
        return None
    behind = list(row[place:])
    count = behind.index(usual[place]) if usual[place] in behind else len(behind)
    pairs = zip(behind[count:], usual[place:], strict=False)
    agreeing = next((n for n, (mine, theirs) in enumerate(pairs) if mine != theirs), len(behind) - count)
    return Reading(Kind.EXTRA, count, agreeing, whole=True)
