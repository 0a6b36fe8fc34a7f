"""Numbers of a launch that contradict each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Contradiction:
    """What does not fit, as a sentence without its full stop. `complete`: all that the launch starts has been seen."""

    summary: str
    fix: str
    evidence: tuple[str, ...]
    complete: bool = False
