"""The ranks that wait for a batch, with the workers that could bring it."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.data_loading import Feeding, Worker


def feedings(case: Case) -> Iterator[Feeding]:
    """The ranks that wait for a batch of their workers."""
    for view in case:
        if not view.dead and not view.stopped:
            feeding = Feeding(view)
            if feeding.waits:
                yield feeding


def worker_of(feeding: Feeding, worker: Worker) -> str:
    return f"Loader worker {worker.name} of rank {feeding.view.rank} (pid {worker.pid})"


def victims_of(case: Case, ranks: list[int]) -> tuple[int, ...]:
    """All that wait: `ranks`, which a process or a file keeps waiting, and those that wait for them in a call."""
    return tuple(sorted({*ranks, *case.blocked}))


def and_others(case: Case, ranks: list[int]) -> str:
    others = [rank for rank in case.blocked if rank not in ranks]
    return f", and {case.wait_words(others)} for {words.ranks(ranks)}" if others else ""
