"""From single runs to what stands in a table: one row a cause, and the rates over all."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hangwatch.commands.benchmark.results import Control, PeerRun, Run


@dataclass(frozen=True)
class Row:
    """All runs of one cause. Times are in seconds, None where there was no verdict."""

    cause: str
    runs: int
    median_s: float | None
    worst_s: float | None
    cause_right: int
    culprit_right: int
    wrong_culprit: int
    certainties: dict[str, int]  # of the cause
    hangs: dict[str, int]  # the certainty that the job is dead


def rows(runs: Sequence[Run]) -> list[Row]:
    """One row a cause, in the order in which they were played."""
    return [row(cause, [run for run in runs if run.truth == cause]) for cause in dict.fromkeys(r.truth for r in runs)]


def row(cause: str, runs: Sequence[Run]) -> Row:
    times = [run.detected_after_s for run in runs if run.detected_after_s is not None]
    return Row(
        cause=cause,
        runs=len(runs),
        median_s=statistics.median(times) if times else None,
        worst_s=max(times, default=None),
        cause_right=sum(run.cause_right for run in runs),
        culprit_right=sum(run.culprit_right for run in runs),
        wrong_culprit=sum(run.wrong_culprit for run in runs),
        certainties=dict(Counter(_said(run, run.certainty) for run in runs)),
        hangs=dict(Counter(_said(run, run.hang or run.status) for run in runs)),
    )


def _said(run: Run, answer: str) -> str:
    if answer:
        return answer
    return "none" if run.wants_verdict else run.expected


def proven(runs: Iterable[Run]) -> list[float]:
    """The times of the verdicts that prove the hang, in order."""
    return sorted(r.detected_after_s for r in runs if r.hang == "proven" and r.detected_after_s is not None)


def alarms_per_hour(controls: Sequence[Control]) -> tuple[int, float, float]:
    """False alarms, hours of healthy runs, and the rate."""
    alarms, hours = sum(bool(each.alarm) for each in controls), sum(each.seconds for each in controls) / 3600
    return alarms, hours, alarms / hours if hours else 0.0


def peers(runs: Sequence[PeerRun]) -> dict[str, dict[str, list[PeerRun]]]:
    """By cause, then by peer."""
    found: dict[str, dict[str, list[PeerRun]]] = {}
    for run in runs:
        found.setdefault(run.truth, {}).setdefault(run.peer, []).append(run)
    return found
