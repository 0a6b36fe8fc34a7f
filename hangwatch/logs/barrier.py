"""What `torch.distributed.monitored_barrier` says of ranks that did not come: on rank 0, which asks each of them."""

from __future__ import annotations

import re

from hangwatch.model import Frame
from hangwatch.ranks.late_at_barrier import MARK, late_at_barrier
from hangwatch.stacks.frames import origin

from .model import LateAtBarrier, Logs

MARKS = (MARK,)
_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


class Barrier:
    """Takes the lines of a log, one after another: the traceback before the sentence tells the line of the barrier."""

    def __init__(self) -> None:
        self._where: Frame | None = None

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. False for a line of no use."""
        if place := _PLACE.search(line):
            if origin(place[1]) == "user":
                self._where = Frame(place[1], int(place[2]), place[3])
            return False
        if "Traceback (most recent call last)" in line:
            self._where = None
        if (found := late_at_barrier(line)) is None:
            return False
        _keep({*found.ranks}, found.timeout_s, self._where, logs)
        return True


def _keep(ranks: set[int], timeout_s: float, where: Frame | None, logs: Logs) -> None:
    logs.ranks.update(ranks, {0})
    if logs.late is None:
        logs.late = LateAtBarrier(ranks, timeout_s, where)
    elif logs.late.timeout_s == timeout_s and (where is None or logs.late.where in (None, where)):
        logs.late.ranks |= ranks  # with wait_all_ranks, each rank has a line, and all of them have one
        logs.late.where = logs.late.where or where
