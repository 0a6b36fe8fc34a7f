"""Ranks that wait for a worker of their loader, and the errors that they raise for it."""

from __future__ import annotations

from hangwatch.model import (
    ExceptionFacts,
    RankEvidence,
)
from tests.unit.job import (
    IN_BACKWARD,
    NOW,
    feeding,
    gone,
    rank,
)

WAITING = rank(1, IN_BACKWARD, issued=11, completed=10)  # for rank 0


def fed(number: int = 0, *workers: object, **parts: object) -> RankEvidence:
    return feeding(number, *workers, issued=10, completed=10, **parts)  # type: ignore[arg-type]


def error(kind: str, message: str) -> dict[str, object]:
    return {"exception": ExceptionFacts(kind, message, (), at=NOW - 5)}


def failing(number: int, message: str, **parts: object) -> RankEvidence:
    return gone(number, 1, issued=10, completed=10, **error("RuntimeError", message), **parts)  # type: ignore[arg-type]
