"""What is no hang and still worth a word: the Health table of the catalogue.

A healthy job should hear at most one line of this, so every rule would rather be silent than wrong: thresholds are
high, and what has an innocent explanation is not told. `HealthWatch` is asked at every poll with the readings of all
ranks of a node; `device_warnings` and `leftover_processes` once a capture, because GPUs are
only looked at then.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.model import HealthWarning, JobHealth, Reading

from . import environment, loaders, plans
from .across_nodes import forecasts, forecasts_of, plan_of, with_plan
from .confirmed import Confirmed
from .devices import device_warnings, foreign_memory
from .job_health import job_health, merged
from .leftovers import leftover_processes
from .links import LinkWatch
from .pace import PaceWatch, agreed
from .pace_history import PaceHistory, periods

FORECASTS = frozenset({"uneven-forecast", "plans-differ"})
"""Warnings that tell of a hang to come: what `--on-forecast abort` heeds."""

__all__ = [
    "FORECASTS",
    "Confirmed",
    "HealthWatch",
    "LinkWatch",
    "PaceHistory",
    "agreed",
    "device_warnings",
    "forecasts",
    "forecasts_of",
    "foreign_memory",
    "job_health",
    "leftover_processes",
    "merged",
    "periods",
    "plan_of",
    "warnings",
    "with_plan",
]

RULES = (
    loaders.uneven_forecast,
    loaders.sampler_world_mismatch,
    loaders.sampler_full_copy,
    loaders.set_epoch_missing,
    plans.plans_differ,
    environment.differing,
    environment.hurting,
)


def warnings(readings: Sequence[Reading]) -> tuple[HealthWarning, ...]:
    """What can be told from one look at the ranks' boards."""
    ranks = _by_rank(readings)
    return tuple(found for rule in RULES if (found := rule(ranks)) is not None)


class HealthWatch:
    """Tells each kind of warning once. Remembers how fast the ranks were, which one look does not show."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._pace = PaceWatch()

    def pace(self, readings: Sequence[Reading]) -> JobHealth:
        """How fast the ranks have been of late."""
        return job_health(
            self._pace.history.windows, {rank: each.identity.host for rank, each in _by_rank(readings).items()}
        )

    def __call__(self, readings: Sequence[Reading]) -> tuple[HealthWarning, ...]:
        """The warnings that are new."""
        found = (*warnings(readings), *self._pace.update(_by_rank(readings)))
        new = tuple(each for each in found if each.kind not in self._told)
        self._told.update(each.kind for each in new)
        return new


def _by_rank(readings: Sequence[Reading]) -> dict[int, Reading]:
    """The newest reading of each rank: a restarted rank leaves an old one behind."""
    living = sorted((each for each in readings if not each.detached), key=lambda each: each.identity.started_at)
    return {each.identity.rank: each for each in living if each.identity.rank is not None}
