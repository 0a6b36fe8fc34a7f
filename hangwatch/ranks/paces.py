"""How many forwards a rank makes for an optimizer step, and how many collectives it issues in that time.

Ranks may accumulate over unlike numbers of forwards on purpose, such as hosts with other batch sizes: those that issue
equally many collectives for each optimizer step meet well, though a step of one has calls that no other has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hangwatch.model import StepEntry

WARM_UP = 2  # first optimizer steps, in which DDP finds out about its buckets by further collectives
LEAST_ALIKE = 3  # whole optimizer steps on record, all alike, that make a pace


@dataclass(frozen=True)
class Pace:
    """The forwards of one optimizer step, and the collectives of a group that were issued in that time."""

    forwards: int
    issued: int


def paces_of(steps: Sequence[StepEntry], group: str) -> tuple[Pace, ...]:
    """Those of all whole optimizer steps on record behind the warm-up, where forwards are the steps."""
    ends = [after for before, after in pairwise(steps) if after.optimizer_steps != before.optimizer_steps]
    return tuple(
        Pace(after.step - before.step, after.issued.get(group, 0) - before.issued.get(group, 0))
        for before, after in pairwise(ends[WARM_UP:])
    )


def pace_of(steps: Sequence[StepEntry], group: str) -> Pace | None:
    """The one pace that a rank keeps; None where it keeps none, or too little is on record."""
    found = paces_of(steps, group)
    return found[0] if len(found) >= LEAST_ALIKE and len(set(found)) == 1 else None


def fit_together(paces: Iterable[Pace | None]) -> bool:
    """Each rank keeps a pace, and these differ in their forwards alone."""
    found = set(paces)
    issued = {pace.issued if pace is not None else 0 for pace in found}
    return len(found) > 1 and len(issued) == 1 and 0 not in issued
