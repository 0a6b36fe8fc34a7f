"""All ranks spend their time waiting for data."""

from __future__ import annotations

from collections.abc import Mapping

from hangwatch.model import HealthWarning

from .pace import ms, slow_ranks, table
from .pace_history import Mean, Period
from .telling import Ranks, backends, warning
from .thresholds import LEAST_WAIT_S, WAITING, WAITING_ASYNC


def data_bound(before: Period, newest: Period, ranks: Ranks) -> HealthWarning | None:
    """In both periods, and in none of them ranks waited for a slow one: of those it would be said as well."""
    if slow_ranks(before.means) or slow_ranks(newest.means) or _found(before.means, ranks) is None:
        return None
    return _found(newest.means, ranks)


def _found(paces: Mapping[int, Mean], ranks: Ranks) -> HealthWarning | None:
    share = WAITING_ASYNC if "nccl" in backends(ranks) else WAITING
    least = min(paces.values(), key=lambda pace: pace.share)
    if least.share < share or min(pace.data_s for pace in paces.values()) < LEAST_WAIT_S:
        return None
    summary = (
        f"Every rank spends {least.share:.0%} of its time or more waiting for the loader ({ms(least.data_s)} a step)"
    )
    return warning("data-bound", summary, ranks, evidence=table(paces))
