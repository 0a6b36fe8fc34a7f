"""A call that waits for all workers, which some ranks left out."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.rules.finding import Finding
from hangwatch.rules.passed_meeting import went_by


def went_by_a_meeting(case: Case) -> Finding | None:
    """Ranks are past a call that returns when all have come to it, and no value or rank decided about it."""
    return went_by(case, "skipped-collective")
