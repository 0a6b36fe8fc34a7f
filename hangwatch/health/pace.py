"""How fast the ranks are, each for itself: a slow rank, or one and all waiting for data.

After the first gradient collective of a step all ranks are equally slow, so only what comes before it is compared: the
wait for the batch, and the time from the batch to the end of the forward. The first steps do not count, and a finding
must hold for two periods in a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low

from hangwatch.model import HealthWarning
from hangwatch.words import ranks as named

from .pace_history import Mean, PaceHistory, Period, periods
from .telling import Ranks, backends, warning
from .thresholds import LEAST_LAG_S, LEAST_WAIT_S, SLOWER, WAITING, WAITING_ASYNC


class PaceWatch:
    """Tells what two periods in a row agree on."""

    def __init__(self) -> None:
        self.history = PaceHistory()

    def update(self, ranks: Ranks) -> tuple[HealthWarning, ...]:
        """What is told of the period that ends with these readings; () in the middle of one."""
        at = max((reading.taken_at for reading in ranks.values()), default=0.0)
        times = {rank: reading.times for rank, reading in ranks.items()}
        processes = {rank: (reading.identity.pid, reading.identity.started_at) for rank, reading in ranks.items()}
        ended = self.history.note(at, times, processes)
        found = periods(self.history.windows) if ended else None
        return () if found is None else agreed(*found, ranks)


def agreed(before: Period, newest: Period, ranks: Ranks) -> tuple[HealthWarning, ...]:
    """What is to be said of both periods, in the newer one's words."""
    slow = steadily_slow(before) & steadily_slow(newest)
    if slow:
        return (_straggler({rank: newest.means[rank] for rank in slow}, newest.means, ranks),)
    if slow_ranks(before.means) or slow_ranks(newest.means):
        return ()  # data-bound would be said of ranks that wait for a slow one
    found = _data_bound(newest.means, ranks)
    return (found,) if found is not None and _data_bound(before.means, ranks) is not None else ()


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


def _straggler(slow: Mapping[int, Mean], paces: Mapping[int, Mean], ranks: Ranks) -> HealthWarning:
    rank, worst = max(slow.items(), key=lambda each: each[1].alone_s)
    needs = f"{_ms(worst.alone_s)} a step until {'it' if len(slow) == 1 else f'rank {rank}'} has made its forward"
    where = ", most of it waiting for the loader" if worst.data_s > worst.alone_s / 2 else ""
    host = _whole_host(set(slow), ranks)
    summary = (
        f"All wait for {named(slow)}{f', all of {host},' if host else ''} in each step:"
        f" {needs}{where}; {_ms(typical(paces))} on a typical rank"
    )
    return warning("straggler", summary, ranks, about=slow, evidence=_table(paces))


def _whole_host(slow: set[int], ranks: Ranks) -> str:
    """The one machine whose ranks these are, all of them and no others; "" where they are not."""
    hosts = {ranks[rank].identity.host for rank in slow if rank in ranks}
    if len(hosts) != 1 or len(slow) < 2:
        return ""
    (host,) = hosts
    all_hosts = {reading.identity.host for reading in ranks.values()}
    own = {rank for rank, reading in ranks.items() if reading.identity.host == host}
    return host if own == slow and len(all_hosts) > 1 else ""


def _data_bound(paces: Mapping[int, Mean], ranks: Ranks) -> HealthWarning | None:
    share = WAITING_ASYNC if "nccl" in backends(ranks) else WAITING
    least = min(paces.values(), key=lambda pace: pace.share)
    if least.share < share or min(pace.data_s for pace in paces.values()) < LEAST_WAIT_S:
        return None
    summary = (
        f"Every rank spends {least.share:.0%} of its time or more waiting for the loader ({_ms(least.data_s)} a step)"
    )
    return warning("data-bound", summary, ranks, evidence=_table(paces))


def _table(paces: Mapping[int, Mean]) -> Sequence[str]:
    return [
        f"rank {rank}: {_ms(pace.data_s)} waiting for data and {_ms(pace.before_sync_s)} from there to the end of the"
        f" forward, in {pace.steps} steps on average"
        for rank, pace in sorted(paces.items())[:16]
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"
