"""Simulated jobs, and changes of one rank's evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hangwatch.model import (
    ExceptionFacts,
    Frame,
    LockFile,
    ProcessFacts,
    RankEvidence,
    Snapshot,
)
from tests.unit.simulator import (
    SCRIPT,
    Action,
    Call,
    Draw,
    Stall,
    World,
)

Program = list[Action]
Groups = dict[str, list[tuple[int, ...]]]
STEP: Program = [Draw(), Call(line=12, via="gradients"), Call(line=13)]


def world(*programs: Program, groups: Groups | None = None) -> Snapshot:
    return World(programs, groups).run().snapshot()


def changed(snapshot: Snapshot, rank: int, change: Callable[[RankEvidence], RankEvidence]) -> Snapshot:
    return replace(snapshot, ranks=tuple(change(e) if e.rank == rank else e for e in snapshot.ranks))


def stuck(kind: str, **process: object) -> Snapshot:
    """Three ranks, of which the middle one stands in code; with facts of its process."""
    snapshot = world(STEP * 5, [*STEP * 3, Draw(), Stall(kind=kind)], STEP * 5)
    return changed(snapshot, 1, lambda e: replace(e, still_s=500, process=replace(_process(e), **process)))  # type: ignore[arg-type]


def _process(entry: RankEvidence) -> ProcessFacts:
    assert entry.process is not None
    return entry.process


def error(message: str, *, fatal: bool = False, at: float = 5.0) -> ExceptionFacts:
    return ExceptionFacts("IndexError", message, (Frame(SCRIPT, 33, "crop"),), fatal=fatal, at=at)


def with_error(found: ExceptionFacts) -> Callable[[RankEvidence], RankEvidence]:
    def change(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        return replace(entry, reading=replace(entry.reading, exception=found))

    return change


def data_parallel(batches: int) -> Program:
    return [action for batch in range(batches) for action in (Draw(0, batch), Call(line=12, via="gradients"))]


def retrying(snapshot: Snapshot, *locks: LockFile) -> Snapshot:
    """Rank 1 has just met an error in the function in which it sleeps."""
    error = ExceptionFacts("BlockingIOError", "[Errno 11]", (Frame(SCRIPT, 39, "push"),), at=10_000.0, fatal=False)

    def met(evidence: RankEvidence) -> RankEvidence:
        reading = replace(evidence.reading, exception=error) if evidence.reading is not None else None
        return replace(evidence, reading=reading, lock_files=locks)

    return changed(snapshot, 1, met)


def with_ring(entry: RankEvidence) -> RankEvidence:
    """The recorded calls of a rank stand on its board: Python code issued them all."""
    assert entry.reading is not None
    return replace(entry, reading=replace(entry.reading, calls=entry.collectives.recent))
