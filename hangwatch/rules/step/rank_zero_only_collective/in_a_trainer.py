"""A value that one rank logs, and that its trainer reduces over all of them."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.rules.finding import Finding
from hangwatch.rules.logged_unlike import logged_unlike


def logged_alone(case: Case) -> Finding | None:
    """It is logged behind a check of the rank, such as a decorator that lets only rank 0 in."""
    return logged_unlike(case, "rank-zero-only-collective")
