"""What is no hang and still worth a word: the Health table of the catalogue.

A healthy job should hear at most one line of this, so every rule would rather be silent than wrong: thresholds are
high, and what has an innocent explanation is not told. Each warning has its rule in the module of its name.
`HealthWatch` is asked at every poll with the readings of all ranks of a node; `device_warnings` and
`leftover_processes` once a capture, because GPUs are only looked at then, and `timeout_ahead` when ranks have waited.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.catalogue import CATALOGUE
from hangwatch.model import HealthWarning, JobHealth, Reading

from . import (
    nccl_environment,
    plans_differ,
    sampler_full_copy,
    sampler_world_mismatch,
    set_epoch_missing,
    uneven_forecast,
)
from .across_nodes import forecasts, forecasts_of, plan_of, with_plan
from .confirmed import Confirmed
from .gpu_leftover_process import leftover_processes
from .gpu_memory import foreign_memory
from .gpu_memory_imbalance import device_warnings
from .job_health import job_health, merged
from .pace_history import PaceHistory, periods
from .pace_watch import PaceWatch, agreed
from .slow_link import LinkWatch

FORECASTS = frozenset(cause.id for cause in CATALOGUE if cause.forecast)
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
    uneven_forecast.uneven_forecast,
    sampler_world_mismatch.sampler_world_mismatch,
    sampler_full_copy.sampler_full_copy,
    set_epoch_missing.set_epoch_missing,
    plans_differ.plans_differ,
    nccl_environment.differing,
    nccl_environment.hurting,
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
