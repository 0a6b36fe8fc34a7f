"""Errors of Ray's workers, as the driver prints them: by process, whose rank another line may tell."""

from __future__ import annotations

import re
from dataclasses import replace

from hangwatch.model import Frame
from hangwatch.stacks.frames import origin

from .going_on import Turns
from .model import Logs, Raised, Reaped
from .tracebacks import MARKS as TRACEBACKS
from .tracebacks import keep_nameless

MARKS = ("ray.exceptions.RayTaskError(",)
RANK = re.compile(r"pid=(\d+)(?:, ip=([\w.:]+))?\).*\[rank=(\d+), world_size=\d+\]")
_TASK = re.compile(r"RayTaskError\(\w+\): ray::\S+ \(pid=(\d+)(?:, ip=([\w.:]+))?")
_PLACE = re.compile(r'^\s+File "([^"]+)", line (\d+), in (\S+)')
_ERROR = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b(?:: .*)?$")
_HEADS = (TRACEBACKS[0], "During handling of the above exception", "The above exception was the direct cause")
_LABEL = re.compile(r"^(?:\x1b\[[\d;]*m)*\([^()]*pid=\d+[^()]*\)")
_TURNS = 10  # that a program makes behind an error which a driver has caught and tried again


class Lines:
    """Takes the lines of one log, one after another. The innermost of nested tasks has raised the error."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[str, str], int] = {}  # by pid and address
        self._open: tuple[str, str] | None = None
        self._where: Frame | None = None
        self._labelled = False  # its lines
        self._failed: dict[int | str, Turns] = {}  # ranks, and keys of processes whose rank is not known
        self._turned: dict[int | str, int] = {}

    def take(self, whole: str, line: str, logs: Logs) -> bool:
        """Keep what a line says; `line` is `whole` without labels. False for a line of no use."""
        if "[rank=" in whole and (told := RANK.search(whole)):
            self._ranks[told[1], told[2] or ""] = int(told[3])
        elif "RayTaskError(" in line and (task := _TASK.search(line)):
            self._open, self._where, self._labelled = (task[1], task[2] or ""), None, _labelled(whole)
        elif self._open is not None:
            return _labelled(whole) is self._labelled and self._further(self._open, line, logs)
        return False

    def goes_on(self, line: str, logs: Logs) -> None:
        """An ordinary line: where the program counts up behind an error again and again, it was caught."""
        for key in [key for key, turns in self._failed.items() if turns.take(line)]:
            self._turned[key] += 1
            if self._turned[key] >= _TURNS:
                del self._failed[key]
                _caught(key, logs)

    def _further(self, process: tuple[str, str], line: str, logs: Logs) -> bool:
        if place := _PLACE.match(line):
            if self._where is None or origin(place[1]) == "user":
                self._where = Frame(place[1], int(place[2]), place[3])
            return False
        if not _ERROR.match(line):
            if line[:1].strip() and not line.startswith(_HEADS):
                self._open = None  # an ordinary line: the error was not told to its end
            return False
        self._open, rank = None, self._ranks.get(process)
        if rank is not None:
            self._follow(rank)
            if rank not in logs.raised or logs.raised[rank].went_on:
                logs.raised[rank] = Raised(line.strip(), self._where, ended=True)
        else:
            told = "Ray tells of its process, and no line of its rank"
            found = Reaped(-1, int(process[0]), None, line.strip(), self._where, "A worker of Ray", told)
            self._follow(f"ray {process}")
            logs.reaped.setdefault(f"ray {process}", found)
        return True

    def _follow(self, key: int | str) -> None:
        self._failed[key], self._turned[key] = Turns(), 0


def _labelled(whole: str) -> bool:
    return _LABEL.match(whole) is not None


def _caught(key: int | str, logs: Logs) -> None:
    """The error of a rank, or of a process whose rank is not known, has ended no job."""
    if isinstance(key, str):
        found = logs.reaped.pop(key)
        keep_nameless(Raised(found.text, found.where, went_on=True), None, logs)
    else:
        logs.raised[key] = replace(logs.raised[key], ended=False, went_on=True)
