"""How fast the ranks are, each for itself: a slow rank, or one and all waiting for data.

After the first gradient collective of a step all ranks are equally slow, so only what comes before it is compared: the
wait for the batch, and the time from the batch to the end of the forward. The first steps do not count, and a finding
must hold for two periods in a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low

from .pace_history import Mean, Period
from .thresholds import LEAST_LAG_S, SLOWER


def steadily_slow(period: Period) -> set[int]:
    """The ranks that are slow on average and in each window: a burst of slow steps is no straggler."""
    slow = set(slow_ranks(period.means))
    for window in period.windows:
        least = limit(window.typical_s)
        slow = {rank for rank in slow if window.alone_s(rank) > least}
    return slow


def slow_ranks(paces: Mapping[int, Mean]) -> dict[int, Mean]:
    """The ranks that the others wait for in each step; none where it is not known where a step waits for the others."""
    if len(paces) < 2 or not all(pace.before_sync_s for pace in paces.values()):
        return {}
    least = limit(typical(paces))
    return {rank: pace for rank, pace in paces.items() if pace.alone_s > least}


def typical(paces: Mapping[int, Mean]) -> float:
    """What a typical rank needs until the end of its forward. Seconds a step."""
    return median_low(pace.alone_s for pace in paces.values())


def limit(usual_s: float) -> float:
    """From where on a rank is slow, where a typical one needs `usual_s`."""
    return max(usual_s * SLOWER, usual_s + LEAST_LAG_S)


def table(paces: Mapping[int, Mean]) -> Sequence[str]:
    return [
        f"rank {rank}: {ms(pace.data_s)} waiting for data and {ms(pace.before_sync_s)} from there to the end of the"
        f" forward, in {pace.steps} steps on average"
        for rank, pace in sorted(paces.items())[:16]
    ]


def ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"
