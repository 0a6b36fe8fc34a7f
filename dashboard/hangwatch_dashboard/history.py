"""The last minutes of a job, column by column: five minutes of 10,000 ranks are 40 MB, not a gigabyte."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hangwatch.model import Phase, RankBeat
from hangwatch_dashboard.unhurried import unhurried

SPAN_S = 300.0
MANY_RANKS = 2_000  # above, every second second is kept
PHASES = tuple(Phase)
PHASE_INDEX = {str(phase): index for index, phase in enumerate(PHASES)}  # by text: an enum's own hash is slow


@dataclass(frozen=True)
class Moment:
    """All ranks at one moment; the columns have one entry a rank."""

    at: float
    ranks: tuple[int, ...]
    step: array[int]
    phase: bytes
    step_s: array[float]
    data_s: array[float]
    still_s: array[float]


class History:
    """Keeps a moment a second for five minutes. One thread notes, any thread may read."""

    def __init__(self) -> None:
        self._moments: tuple[Moment, ...] = ()  # replaced and never changed
        self._ranks: tuple[int, ...] = ()

    def note(self, at: float, beats: Sequence[RankBeat]) -> None:
        """Takes the ranks' beats, in order of rank, unless the last moment is too near."""
        pause = 1.9 if len(beats) > MANY_RANKS else 0.9
        if self._moments and at - self._moments[-1].at < pause:
            return
        kept = (moment for moment in self._moments if moment.at >= at - SPAN_S)
        self._moments = (*kept, self._moment(at, beats))

    def _moment(self, at: float, beats: Sequence[RankBeat]) -> Moment:
        # Each beat is looked at once: 10,000 of them fit in no cache.
        rows = [
            (b.rank, b.progress.step, b.phase._value_, b.times.last_s, b.times.data_s, b.still_s)
            for b in unhurried(beats)
        ]
        ranks, step, phase, step_s, data_s, still_s = zip(*rows, strict=True) if rows else ((),) * 6
        if ranks == self._ranks:
            ranks = self._ranks  # one tuple for all moments
        self._ranks = ranks
        return Moment(
            at,
            ranks,
            array("q", step),
            bytes([PHASE_INDEX[name] for name in phase]),
            array("f", step_s),
            array("f", data_s),
            array("f", still_s),
        )

    def columns(self, since: float, ranks: Sequence[int]) -> dict[str, Any]:
        """The moments since `since`, of `ranks` only; null where a rank was not there."""
        moments = [moment for moment in self._moments if moment.at >= since]
        result: dict[str, Any] = {"at": [moment.at for moment in moments]}
        for name in ("step", "phase", "step_s", "data_s", "still_s"):
            result[name] = [_picked(moment, name, ranks) for moment in moments]
        return result


def _picked(moment: Moment, name: str, ranks: Sequence[int]) -> list[float | None]:
    column = getattr(moment, name)
    if moment.ranks == ranks:
        positions: Sequence[int | None] = range(len(ranks))
    else:
        where = {rank: index for index, rank in enumerate(moment.ranks)}
        positions = [where.get(rank) for rank in ranks]
    return [None if place is None else _short(column[place]) for place in positions]


def _short(value: Any) -> Any:
    """A number as JSON takes it: one that single precision could not hold has become an infinity."""
    if isinstance(value, int):
        return value
    return round(value, 4) if math.isfinite(value) else None
