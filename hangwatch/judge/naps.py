"""Ranks that nap in a loop of the program's own, between two looks or tries, or a loader worker of theirs that does."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.facts.processes.data_loading import Feeding, Worker
from hangwatch.facts.processes.leaving import exits_by_stack
from hangwatch.facts.processes.sleep import A_TURN_S
from hangwatch.model import Frame, LoopFacts, ProcessFacts, Snapshot
from hangwatch.ranks.view import RankView
from hangwatch.ranks.views import views_of
from hangwatch.stacks.frames import origin


def asking_the_store(snapshot: Snapshot) -> frozenset[int]:
    """Ranks that nap between two looks into the job's store, to which each look writes: no work, whatever it counts."""
    return frozenset(
        view.rank for view in views_of(snapshot) if (loop := naps_in(view)) is not None and loop.asks_store
    )


def naps_in(view: RankView) -> LoopFacts | None:
    """The loop of the program's own code in which it naps, or the loader workers for which it waits.

    A function of a package may try something again for ever.
    """
    feeding = Feeding(view)
    if feeding.waits:
        loops = [_worker_naps_in(worker) for worker in feeding.suspects]
        return loops[0] if loops and all(loops) else None
    leaves = view.over or exits_by_stack(view)
    return view.now.loop if view.sleeps and not leaves and _naps(view.in_kernel, view.evidence.main_stack) else None


def _worker_naps_in(worker: Worker) -> LoopFacts | None:
    loop = worker.stack.loop if worker.stack is not None else None
    sleeps = "sleep" in (worker.facts.system_call or "") and _naps(worker.facts, worker.inner)
    own = loop is not None and any(f.scope == loop.where.scope for f in worker.inner)
    return loop if sleeps and own else None


def _naps(process: ProcessFacts | None, stack: Sequence[Frame]) -> bool:
    """Its own code sleeps, for no longer than one turn of a loop that tries something again may."""
    innermost = next((frame for frame in stack if not frame.native), None)
    left_s = (process.sleeps_s or 0.0) if process is not None else 0.0
    return innermost is not None and origin(innermost.file) == "user" and left_s <= A_TURN_S
