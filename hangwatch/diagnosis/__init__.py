"""Evidence in, verdict out: `judgement = diagnose(snapshot)`.

The rules are asked in the catalogue's order, and the first that finds something is right: a process that is gone comes
before any counting, an earlier step before a later one, a cause inside the ranks before one outside.
"""

from __future__ import annotations

from ..records import Judgement, Snapshot
from . import (
    code,
    collectives,
    data,
    device,
    endings,
    exceptions,
    exit,
    lone,
    loops,
    outside,
    processes,
    start,
    steps,
    threads,
    turns,
)
from .case import Case
from .finding import Finding, Rule
from .verdict import judged, undetermined

__all__ = ["ORDER", "Case", "Finding", "diagnose"]

ORDER: tuple[Rule, ...] = (
    # What ended a rank or its data comes before the end of the rank itself.
    *start.GONE,
    *data.GONE,
    *collectives.GONE,
    *threads.GONE,
    *lone.GONE,
    *endings.GONE,
    *exit.GONE,
    *processes.GONE,
    *exceptions.RULES,
    *start.RULES,
    *data.RULES,
    *exit.RULES,
    *code.SIGNALS,
    *threads.FIRST,
    *loops.DRY,
    *steps.RHYTHM,
    *lone.RULES,
    *steps.RULES,
    *loops.RULES,
    *turns.RULES,
    *collectives.RULES,
    *code.RULES,
    *device.RULES,
    *outside.RULES,
    *processes.LAST,
)


def diagnose(snapshot: Snapshot) -> Judgement:
    """The verdict on a job that does not move, with its status and stage. Never raises on odd evidence."""
    case = Case(snapshot)
    finding = next((found for rule in ORDER if (found := rule(case)) is not None), None)
    return judged(case, finding or undetermined(case))
