"""What mpirun says of the first of its processes that failed, which it names by its rank."""

from __future__ import annotations

import re

from .model import Failure, Logs

MARKS = ("noticed that process rank ",)
_ENDED = re.compile(
    r"noticed that process rank (\d+) with PID (\d+) on node (\S+) exited on signal (\d+)", re.IGNORECASE
)
_INTERRUPT = 2


def take(line: str, logs: Logs) -> bool:
    """Keep what a line says. False for a line of no use."""
    found = _ENDED.search(line) if MARKS[0] in line else None
    if found is None:
        return False
    rank, pid, signal = int(found[1]), int(found[2]), int(found[4])
    if signal == _INTERRUPT:  # a person ended the job
        return False
    logs.noticed.setdefault(rank, Failure(rank, found[3], pid, -signal, first=True))
    return True
