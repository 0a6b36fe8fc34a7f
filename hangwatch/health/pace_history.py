"""How fast the ranks have been, in windows: what one look at sums over the whole run does not show."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from hangwatch.model import StepTimes

from .thresholds import LEAST_STEPS, MOST_WINDOWS, PERIOD_S, PERIOD_STEPS, WARM_UP_STEPS, WINDOW_S


@dataclass(frozen=True, slots=True)
class Mean:
    """A rank's mean step in some time. Seconds a step, but for `wall_s`, which is the whole time."""

    steps: int
    data_s: float
    before_sync_s: float
    wall_s: float

    @property
    def alone_s(self) -> float:
        """Of a step: until the rank had to meet the others."""
        return self.data_s + self.before_sync_s

    @property
    def share(self) -> float:
        """Of the time: spent waiting for data."""
        return min(self.data_s * self.steps / self.wall_s, 1.0)


@dataclass(frozen=True)
class Window:
    """Sums of one window; the columns have one entry a rank, in the order of `ranks`. Seconds."""

    at: float
    wall_s: float
    ranks: tuple[int, ...]
    steps: array[int]
    data_s: array[float]
    before_sync_s: array[float]
    total_s: array[float]
    least_steps: int  # of a rank
    typical_s: float  # what a typical rank needs of a step until the end of its forward

    def alone_s(self, rank: int) -> float:
        """Of the rank's mean step: until it had to meet the others."""
        index = bisect_left(self.ranks, rank)
        return (self.data_s[index] + self.before_sync_s[index]) / self.steps[index]


@dataclass(frozen=True)
class Period:
    """Windows in a row that are long enough to be judged, and each rank's mean in them."""

    windows: tuple[Window, ...]
    means: Mapping[int, Mean]


LONGEST_S = 1e7  # no window lasts a third of a year


class PaceHistory:
    """Keeps the last windows of all ranks. A rank that restarts, comes or goes starts it anew.

    A window ends when it is long enough and every rank has made enough steps; while one stands still, none ends, so
    that a hang leaves the windows before it. `windows` is replaced and never changed: threads may read what they took.
    """

    def __init__(self) -> None:
        self.windows: tuple[Window, ...] = ()
        self._start: dict[int, StepTimes] = {}
        self._start_at = 0.0
        self._processes: Mapping[int, object] = {}

    def due(self, at: float) -> bool:
        """Whether `note` is worth its cost."""
        return not self._start or not 0 <= at - self._start_at < WINDOW_S

    def note(self, at: float, times: Mapping[int, StepTimes], processes: Mapping[int, object]) -> bool:
        """Takes the ranks' sums at one moment. Returns whether a window has ended.

        Args:
            at: the moment, in seconds.
            times: by rank.
            processes: what tells a restarted rank from the one before, by rank.
        """
        if not times or any(each.steps < WARM_UP_STEPS for each in times.values()):
            return False
        if processes != self._processes or at < self._start_at or self._went_back(times):
            self.windows = ()
            self._begin(at, times, processes)
            return False
        if at - self._start_at < WINDOW_S or self._least_steps(times) < LEAST_STEPS:
            return False
        self.windows = (*self.windows, self._window(at, times))[-MOST_WINDOWS:]
        self._begin(at, times, processes)
        return True

    def _begin(self, at: float, times: Mapping[int, StepTimes], processes: Mapping[int, object]) -> None:
        self._start, self._start_at, self._processes = dict(times), at, dict(processes)

    def _went_back(self, times: Mapping[int, StepTimes]) -> bool:
        return times.keys() != self._start.keys() or any(
            each.steps < self._start[rank].steps for rank, each in times.items()
        )

    def _least_steps(self, times: Mapping[int, StepTimes]) -> int:
        return min(each.steps - self._start[rank].steps for rank, each in times.items())

    def _window(self, at: float, times: Mapping[int, StepTimes]) -> Window:
        ranks = tuple(sorted(times))
        if self.windows and self.windows[-1].ranks == ranks:
            ranks = self.windows[-1].ranks  # one tuple for all windows
        pairs = [(times[rank], self._start[rank]) for rank in ranks]
        steps = array("q", (end.steps - start.steps for end, start in pairs))
        data_s = array("d", (_gained(end.data_s - start.data_s) for end, start in pairs))
        forward_s = array("d", (_gained(end.before_sync_s - start.before_sync_s) for end, start in pairs))
        total_s = array("d", (_gained(end.total_s - start.total_s) for end, start in pairs))
        typical = median_low((d + f) / count for d, f, count in zip(data_s, forward_s, steps, strict=True))
        wall_s = at - self._start_at
        return Window(at, wall_s, ranks, steps, data_s, forward_s, total_s, min(steps), typical)


def _gained(seconds: float) -> float:
    """0 for what no sum of times can have gained: a board may say anything."""
    return seconds if 0 <= seconds < LONGEST_S else 0.0


def periods(windows: Sequence[Window]) -> tuple[Period, Period] | None:
    """The last two periods that are long enough to be judged, the older one first; None where there are not two."""
    latest_first = windows[::-1]
    newest = _taken(latest_first)
    before = _taken(latest_first[len(newest) :])
    return (_period(before), _period(newest)) if newest and before else None


def _taken(windows: Iterable[Window]) -> list[Window]:
    """As many windows as make one period, [] where there are too few."""
    taken: list[Window] = []
    wall_s, steps = 0.0, 0
    for window in windows:
        taken.append(window)
        wall_s, steps = wall_s + window.wall_s, steps + window.least_steps
        if wall_s >= PERIOD_S and steps >= PERIOD_STEPS:
            return taken
    return []


def _period(windows: Sequence[Window]) -> Period:
    return Period(tuple(windows), means(windows))


def means(windows: Sequence[Window]) -> dict[int, Mean]:
    """Each rank's mean step in these windows, at least one."""
    wall_s = sum(window.wall_s for window in windows)
    return {
        rank: _of(
            sum(window.steps[index] for window in windows),
            sum(window.data_s[index] for window in windows),
            sum(window.before_sync_s[index] for window in windows),
            wall_s,
        )
        for index, rank in enumerate(windows[0].ranks)
    }


def _of(steps: int, data_s: float, before_sync_s: float, wall_s: float) -> Mean:
    each = max(steps, 1)
    return Mean(steps, data_s / each, before_sync_s / each, max(wall_s, 1e-9))
