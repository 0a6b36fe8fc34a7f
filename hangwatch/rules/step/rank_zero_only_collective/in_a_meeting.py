"""A call that waits for all workers, to which the source leads only some ranks."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.rules.finding import Finding
from hangwatch.rules.passed_meeting import went_by


def alone_in_a_meeting(case: Case) -> Finding | None:
    """Ranks are in a call that returns when all have come to it, behind a condition on the rank."""
    return went_by(case, "rank-zero-only-collective")
