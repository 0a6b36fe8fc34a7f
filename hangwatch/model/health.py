"""A warning about a job that still runs, and how fast its ranks are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class HealthWarning:
    """Not a hang, but worth a word, live and in the report (the Health table of the catalogue)."""

    kind: str  # catalogue id, e.g. "uneven-forecast"
    summary: str
    ranks: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    fix: str = ""
    at: float = 0.0


class Trend(StrEnum):
    """Where a lag is going."""

    STEADY = "steady"
    GROWING = "growing"
    SHRINKING = "shrinking"


@dataclass(frozen=True)
class Pace:
    """The mean step of a rank, or the median of a node's ranks, in seconds: one entry for each `JobHealth.at`.

    `data_s` is spent inside the loader's `next()`, `forward_s` from there to the end of the forward, `wait_s` is the
    rest of the step: backward, communication, waiting for slower ranks, optimizer. `lag_s` is how much longer than the
    typical rank it took until the end of its forward, in the last windows; `data_share` the share of its time spent
    waiting for the loader there.
    """

    ranks: str  # "3", or a node's: "0-7"
    host: str
    lag_s: float
    trend: Trend
    data_share: float
    data_s: tuple[float, ...]
    forward_s: tuple[float, ...]
    wait_s: tuple[float, ...]


@dataclass(frozen=True)
class Spread:
    """How a part of the step, "data", "forward" or "wait", is spread over all ranks. Seconds a step."""

    phase: str
    least: float
    median: float
    p90: float
    most: float


@dataclass(frozen=True)
class Straggler:
    """Ranks that the others wait for in each step, in two periods in a row. `host` is set where it is a whole node."""

    ranks: tuple[int, ...]
    host: str
    phase: str  # where most of the lag is: "data" or "forward"
    lag_s: float
    typical_s: float
    trend: Trend


@dataclass(frozen=True)
class ForeignMemory:
    """GPU memory that a rank holds on a GPU of another rank. `bytes_held` on `gpu`, which `owner` is bound to."""

    host: str
    gpu: int
    owner: int
    rank: int
    pid: int
    bytes_held: int
    line: str = ""  # the user's line that most probably put it there, where the source shows one


@dataclass(frozen=True)
class JobHealth:
    """How fast the ranks are. `ranks` counts them all, of which `worst` and `nodes` hold the slowest, worst first.

    `at` are the ends of the windows, oldest first; empty while no window is complete. `data_share` is the least share
    of its time that a rank spends waiting for the loader: where it is high, all ranks wait for data.
    """

    at: tuple[float, ...] = ()
    ranks: int = 0
    worst: tuple[Pace, ...] = ()
    nodes: tuple[Pace, ...] = ()
    spread: tuple[Spread, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    data_share: float = 0.0
    memory: tuple[ForeignMemory, ...] = ()
