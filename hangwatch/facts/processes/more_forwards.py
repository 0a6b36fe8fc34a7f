"""Ranks that failed behind the end of the others, and had made more forward passes for their updates than these.

They are not left behind by an early end: each forward pass too many came with the collectives of a backward, with which
the other ranks' next ones were paired, until these had no more to make.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.case import Case, once
from hangwatch.facts.processes.process_end import ended_before_others
from hangwatch.model import Progress
from hangwatch.ranks.own_steps import steps_are_forwards
from hangwatch.ranks.view import RankView


@dataclass(frozen=True)
class MoreForwards:
    """`ranks` made `extra` forward passes too many, where the `ended` made `usual` for each of their `updates`."""

    ranks: tuple[int, ...]
    ended: tuple[int, ...]
    extra: dict[int, int]
    usual: int
    updates: int


@once
def more_forwards(case: Case) -> MoreForwards | None:
    """None where those that ended did not all make one number of forward passes for one number of updates."""
    ended, failed = ended_before_others(case) or ([], [])
    counts = {_counts(case.ranks[rank]) for rank in ended}
    if len(counts) != 1 or len(ended) + len(failed) < case.size:
        return None
    forwards, updates = counts.pop()
    usual, rest = divmod(forwards, updates) if updates else (0, 1)
    if rest or not usual:
        return None
    extra = {rank: _extra(case.ranks[rank], usual, updates) for rank in failed}
    return MoreForwards(tuple(failed), tuple(ended), extra, usual, updates) if min(extra.values()) > 0 else None


def _counts(view: RankView) -> tuple[int, int]:
    made = _progress(view)
    return (made.step + 1, made.optimizer_steps) if made is not None else (0, 0)


def _extra(view: RankView, usual: int, updates: int) -> int:
    """Forward passes beyond those of the updates that it has made and of the one that it is in."""
    made = _progress(view)
    if made is None or made.optimizer_steps >= updates:
        return 0
    return made.step + 1 - usual * (made.optimizer_steps + 1)


def _progress(view: RankView) -> Progress | None:
    """The counters of a rank whose steps are its training forwards: those of an evaluation call nothing."""
    return view.reading.progress if view.reading is not None and steps_are_forwards(view) else None
