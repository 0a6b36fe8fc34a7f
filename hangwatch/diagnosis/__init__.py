"""Evidence in, verdict out: `judgement = diagnose(snapshot)`.

The rules are asked in the catalogue's order, and the first that finds something is right: a process that is gone comes
before any counting, an earlier step before a later one, a cause inside the ranks before one outside.
"""

from __future__ import annotations

from dataclasses import replace

from ..records import Certainty, Judgement, Snapshot
from . import (
    backend_aborts,
    code,
    collectives,
    data,
    device,
    device_waits,
    endings,
    exceptions,
    exit,
    lone,
    loops,
    nodes,
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

__all__ = ["ORDER", "Case", "Finding", "diagnose", "worth_confirming"]

ORDER: tuple[Rule, ...] = (
    # What ended a rank or its data comes before the end of the rank itself.
    *start.GONE,
    *data.GONE,
    *backend_aborts.GONE,
    *collectives.GONE,
    *threads.GONE,
    *lone.GONE,
    *endings.GONE,
    *exit.GONE,
    *nodes.GONE,
    *backend_aborts.LAST,
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
    """The verdict on a job that does not move, with its status and stage.

    Never raises on odd evidence: a rule that fails is left out, which is said in the verdict, and then nothing that
    rules behind it say is proven.
    """
    case, faults = Case(snapshot), list[str]()
    finding = next((found for rule in ORDER if (found := asked(rule, case, faults)) is not None), None)
    finding = finding or undetermined(case)
    if faults and finding.certainty is Certainty.PROVEN:
        finding = replace(finding, certainty=Certainty.LIKELY)
    return judged(case, replace(finding, details=(*finding.details, *faults)))


def worth_confirming(snapshot: Snapshot) -> list[tuple[int, int]]:
    """(rank, pid) of ranks whose native frames may show a wait on their device: one of each stack that would matter."""
    if not any("nccl" in head.backend for rank in snapshot.ranks for head in rank.collectives.heads):
        return []
    case = Case(snapshot)
    if any(view.evidence.moved for view in case):
        return []
    return [(view.rank, view.pid) for view in device_waits.worth_confirming(list(case), case.ledger) if view.pid]


def asked(rule: Rule, case: Case, faults: list[str]) -> Finding | None:
    """What `rule` finds. One that raises finds nothing, and leaves a sentence in `faults`."""
    try:
        return rule(case)
    except Exception as error:  # whatever it is, the verdicts of the others must not be lost
        name = f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"
        faults.append(f"The rule {name} of hangwatch failed ({error!r}); please report it, with this report.")
        return None
