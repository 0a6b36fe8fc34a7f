"""A call that few ranks repeated by themselves, as after an error."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.rules.finding import Finding
from hangwatch.rules.repeated import repeated_now


def repeats_its_step(case: Case) -> Finding | None:
    """Few ranks stand in a call that they have made in this step already, and no loop decided about that."""
    return repeated_now(case, "rank-zero-only-collective")
