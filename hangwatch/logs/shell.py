"""What a shell says last of a command that SIGKILL has ended: "Killed"."""

from __future__ import annotations

import re

from hangwatch.catalogue.deaths import advice
from hangwatch.model import Culprit, Judgement, Stage, Status

from .model import Logs
from .unknown import unknown

_KILLED = re.compile(r"^(?:\S+: line \d+: +\d+ )?Killed(?: {2,}\S.*)?$")
_SIGKILL = -9


class LastLine:
    """Takes the lines of one log, one after another; `rank` is that of the file, where its name tells."""

    def __init__(self, rank: int | None) -> None:
        self._rank, self._last = rank, ""

    def take(self, line: str) -> None:
        if line.strip():
            self._last = line.rstrip()

    def end(self, logs: Logs) -> bool:
        """The file has ended; whether its last line tells of it."""
        if not _KILLED.match(self._last):
            return False
        logs.killed.add(self._rank)
        return True


def judged(logs: Logs) -> Judgement | None:
    """The verdict where nothing else tells: the kernel kills for lack of memory, and a person a job that stands."""
    if not logs.killed:
        return None
    ranks = sorted(rank for rank in logs.killed if rank is not None)
    whose = f"rank {ranks[0]}" if len(ranks) == 1 else "a process of this job; no line tells of which rank"
    return unknown(
        Status.FAILED,
        Stage.STEP,
        f"The shell says Killed, as the last line: SIGKILL ended {whose}.",
        fix=f"{advice(_SIGKILL)}; if the job stood still before, give the flight recorder's dumps",
        culprits=(Culprit(ranks[0]),) if len(ranks) == 1 else (),
    )
