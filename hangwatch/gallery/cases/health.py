"""Warnings: the job runs, but not well."""

from __future__ import annotations

from .case import Case, all_but_last, every_rank

HEALTH: tuple[Case, ...] = (
    Case(
        name="forecast",
        cause="uneven-forecast",
        script="uneven_forecast.py",
        culprit=None,
        culprits=all_but_last,
        status="warned",
    ),
    Case(
        name="own-seeds",
        cause="plans-differ",
        script="plans_differ.py",
        culprit=None,
        culprits=every_rank,
        status="warned",
    ),
    Case(
        name="full-copy",
        cause="sampler-full-copy",
        script="sampler_full_copy.py",
        culprit=None,
        culprits=every_rank,
        status="warned",
    ),
    Case(
        name="same-order",
        cause="set-epoch-missing",
        script="set_epoch_missing.py",
        culprit=None,
        culprits=every_rank,
        status="warned",
    ),
    Case(
        name="another-world",
        cause="sampler-world-mismatch",
        script="sampler_world_mismatch.py",
        culprit=None,
        culprits=every_rank,
        status="warned",
    ),
    Case(
        name="timeout-ahead",
        cause="timeout-ahead",
        script="timeout_ahead.py",
        culprit=None,
        culprits=every_rank,
        status="warned",
        after=30.0,
    ),
    Case(
        name="slow-rank",
        cause="straggler",
        script="straggler.py",
        status="warned",
        after=30.0,
    ),
    Case(
        name="slow-data",
        cause="data-bound",
        script="data_bound.py",
        culprit=None,
        culprits=every_rank,
        status="warned",
        after=30.0,
    ),
)
