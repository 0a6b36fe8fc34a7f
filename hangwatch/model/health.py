"""A warning about a job that still runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HealthWarning:
    """Not a hang, but worth a word, live and in the report (the Health table of the catalogue)."""

    kind: str  # catalogue id, e.g. "uneven-forecast"
    summary: str
    ranks: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    fix: str = ""
    at: float = 0.0
