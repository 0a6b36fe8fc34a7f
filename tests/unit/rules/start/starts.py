"""Processes that raised, or were dead, before the group was there."""

from __future__ import annotations

from hangwatch.model import ExceptionFacts, Frame, Progress, RankEvidence
from tests.unit.job import (
    NOW,
    SCRIPT,
    gone,
)

NEVER_CAME = ("rendezvous-missing-ranks", "likely", "hung")


def raised(kind: str = "ImportError", message: str = "No module named 'birds'", **parts: object) -> ExceptionFacts:
    return ExceptionFacts(kind, message, (Frame(SCRIPT, 7, "<module>"),), at=NOW - 12, **parts)  # type: ignore[arg-type]


def dead_before(number: int, code: int = 1, **parts: object) -> RankEvidence:
    return gone(number, code, progress=Progress(), **parts)  # type: ignore[arg-type]
