"""The warnings on pace, told of a job that is looked at again and again."""

from __future__ import annotations

from hangwatch.model import HealthWarning

from .data_bound import data_bound
from .pace_history import PaceHistory, Period, periods
from .straggler import straggler
from .telling import Ranks


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
    found = straggler(before, newest, ranks) or data_bound(before, newest, ranks)
    return (found,) if found is not None else ()
