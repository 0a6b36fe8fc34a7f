"""How fast the ranks are, each for itself: a slow rank, or one and all waiting for data.

After the first gradient collective of a step all ranks are equally slow, so only what comes before it is compared: the
wait for the batch, and the time from the batch to the end of the forward. The first steps do not count (compilation,
caches, workers that start), and a finding must hold for two windows in a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from hangwatch.model import HealthWarning, Reading
from hangwatch.words import ranks as named

from .telling import Ranks, backends, warning

WARM_UP = 10  # steps
WINDOW_STEPS, WINDOW_S = 50, 5.0
SLOWER, LEAST_LAG_S = 1.5, 0.020  # than the typical rank, a step
WAITING, LEAST_WAIT_S = 0.5, 0.010  # share of the time, and a step
WAITING_ASYNC = 0.8  # where work is queued on a GPU, the loop has spare time in which it can wait


@dataclass(frozen=True)
class Pace:
    """What a rank did in one window. Times are seconds: a step's, but for `wall_s`."""

    steps: int
    data_s: float
    before_sync_s: float
    wall_s: float

    @property
    def alone_s(self) -> float:
        """Of a step: until its first collective."""
        return self.data_s + self.before_sync_s

    @property
    def share(self) -> float:
        """Of the time: spent waiting for data."""
        return self.data_s * self.steps / self.wall_s


class PaceWatch:
    """Cuts the ranks' times into windows, and tells what two windows in a row agree on."""

    def __init__(self) -> None:
        self._start: Ranks = {}
        self._before: tuple[HealthWarning, ...] = ()

    def update(self, ranks: Ranks) -> tuple[HealthWarning, ...]:
        """What is told of the window that ends with these readings; () in the middle of one."""
        if not ranks or any(reading.times.steps < WARM_UP for reading in ranks.values()):
            return ()
        if _processes(ranks) != _processes(self._start):
            self._start, self._before = ranks, ()
            return ()
        paces = {rank: _pace(self._start[rank], reading) for rank, reading in ranks.items()}
        if any(pace.steps < WINDOW_STEPS or pace.wall_s < WINDOW_S for pace in paces.values()):
            return ()
        found = judged(paces, ranks)
        known = {(each.kind, each.ranks) for each in self._before}
        self._start, self._before = ranks, found
        return tuple(each for each in found if (each.kind, each.ranks) in known)


def judged(paces: Mapping[int, Pace], ranks: Ranks) -> tuple[HealthWarning, ...]:
    """What is to be said of one window."""
    slow = _straggler(paces, ranks)
    return (slow,) if slow is not None else tuple(each for each in [_data_bound(paces, ranks)] if each is not None)


def _straggler(paces: Mapping[int, Pace], ranks: Ranks) -> HealthWarning | None:
    if len(paces) < 2 or not all(pace.before_sync_s for pace in paces.values()):
        return None  # without a known model it is not known where a step waits for the other ranks
    typical = median_low(pace.alone_s for pace in paces.values())
    slow = {r: p for r, p in paces.items() if p.alone_s > max(typical * SLOWER, typical + LEAST_LAG_S)}
    if not slow:
        return None
    rank, worst = max(slow.items(), key=lambda each: each[1].alone_s)
    needs = f"{_ms(worst.alone_s)} a step until {'it' if len(slow) == 1 else f'rank {rank}'} has made its forward"
    where = ", most of it waiting for the loader" if worst.data_s > worst.alone_s / 2 else ""
    summary = f"All wait for {named(slow)} in each step: {needs}{where}; {_ms(typical)} on a typical rank"
    return warning("straggler", summary, ranks, about=slow, evidence=_table(paces))


def _data_bound(paces: Mapping[int, Pace], ranks: Ranks) -> HealthWarning | None:
    limit = WAITING_ASYNC if "nccl" in backends(ranks) else WAITING
    least = min(paces.values(), key=lambda pace: pace.share)
    if least.share < limit or min(pace.data_s for pace in paces.values()) < LEAST_WAIT_S:
        return None
    summary = (
        f"Every rank spends {least.share:.0%} of its time or more waiting for the loader ({_ms(least.data_s)} a step)"
    )
    return warning("data-bound", summary, ranks, evidence=_table(paces))


def _table(paces: Mapping[int, Pace]) -> Sequence[str]:
    return [
        f"rank {rank}: {_ms(pace.data_s)} waiting for data and {_ms(pace.before_sync_s)} from there to the end of the"
        f" forward, in {pace.steps} steps on average"
        for rank, pace in sorted(paces.items())[:16]
    ]


def _pace(start: Reading, end: Reading) -> Pace:
    steps = end.times.steps - start.times.steps
    each = max(steps, 1)
    data = (end.times.data_s - start.times.data_s) / each
    before = (end.times.before_sync_s - start.times.before_sync_s) / each
    return Pace(steps, data, before, max(end.taken_at - start.taken_at, 1e-9))


def _processes(ranks: Ranks) -> set[int]:
    return {reading.identity.pid for reading in ranks.values()}


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"
