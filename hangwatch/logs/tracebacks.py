"""Tracebacks of ranks in a log.

What torch's hook prints of an exception that ends a process begins with `[rank3]:`. A traceback without that, in a file
of one rank, may be of an exception that was caught: it completes what torchrun says of the rank, and is no failure by
itself. Tracebacks of several ranks may be mixed line by line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hangwatch.model import Frame
from hangwatch.stacks.frames import origin

from .model import Logs, Raised

MARKS = ("Traceback (most recent call last)",)
_PREFIX = re.compile(r"^\[rank(\d+)\]: ?(.*)$")
_PLACE = re.compile(r'^\s+File "([^"]+)", line (\d+), in (\S+)')
_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?:: .*)?$")
_ASKED = ("SystemExit", "KeyboardInterrupt")
_OF_LAUNCHERS = ("torch.distributed.elastic.", "torch.multiprocessing.", "subprocess.")


@dataclass
class _Open:
    """A traceback that is being read."""

    ended: bool
    where: Frame | None = None


class Tracebacks:
    """Takes the lines of a log, one after another."""

    def __init__(self) -> None:
        self._open: dict[int | None, _Open] = {}  # None: no line tells whose it is
        self._last: int | None = None  # whose traceback ended with the last line

    def take(self, line: str, logs: Logs, rank: int | None) -> bool:
        """Keep what a line says; `rank` is that of the file, where its name tells. False for a line of no use."""
        if line.strip():
            self._last = None
        if not self._open and MARKS[0] not in line:
            return False
        prefix = _PREFIX.match(line)
        whose, said = (int(prefix[1]), prefix[2]) if prefix else (rank, line)
        if said.startswith(MARKS[0]):
            self._open[whose] = _Open(ended=prefix is not None)
            return False
        known = self._open.get(whose)
        return known is not None and self._further(whose, known, said, logs)

    def _further(self, rank: int | None, known: _Open, said: str, logs: Logs) -> bool:
        if place := _PLACE.match(said):
            if origin(place[1]) == "user" or known.where is None:
                known.where = Frame(place[1], int(place[2]), place[3])
        elif said[:1].strip() and (found := _ERROR.match(said)):
            del self._open[rank]
            if rank is None:
                _keep_nameless(Raised(said.strip(), known.where), logs)
            elif found[1] not in _ASKED:
                logs.raised[rank] = Raised(said.strip(), known.where, known.ended)
                logs.ranks.add(rank)
                self._last = rank
                return True
        return False

    def end(self, logs: Logs) -> None:
        """The file has ended."""
        if self._last is not None:
            logs.raised[self._last] = replace(logs.raised[self._last], last=True)


def _keep_nameless(raised: Raised, logs: Logs) -> None:
    """It is no failure by itself; a launcher's own exceptions follow from those of its processes."""
    if not raised.text.startswith((*_ASKED, *_OF_LAUNCHERS)):
        logs.nameless[raised] = None
