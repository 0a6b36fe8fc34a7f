"""Errors of Ray's workers, as the driver prints them: by process, whose rank another line may tell."""

from __future__ import annotations

import re

from hangwatch.model import Frame
from hangwatch.stacks.frames import origin

from .model import Logs, Raised, Reaped

MARKS = ("ray.exceptions.RayTaskError(",)
_RANK = re.compile(r"pid=(\d+)(?:, ip=([\w.:]+))?\).*\[rank=(\d+), world_size=\d+\]")
_TASK = re.compile(r"RayTaskError\(\w+\): ray::\S+ \(pid=(\d+)(?:, ip=([\w.:]+))?")
_PLACE = re.compile(r'^\s+File "([^"]+)", line (\d+), in (\S+)')
_ERROR = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b(?:: .*)?$")


class Lines:
    """Takes the lines of one log, one after another. The innermost of nested tasks has raised the error."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[str, str], int] = {}  # by pid and address
        self._open: tuple[str, str] | None = None
        self._where: Frame | None = None

    def take(self, whole: str, line: str, logs: Logs) -> bool:
        """Keep what a line says; `line` is `whole` without labels. False for a line of no use."""
        if "[rank=" in whole and (told := _RANK.search(whole)):
            self._ranks[told[1], told[2] or ""] = int(told[3])
        elif "RayTaskError(" in line and (task := _TASK.search(line)):
            self._open, self._where = (task[1], task[2] or ""), None
        elif self._open is not None:
            return self._further(self._open, line, logs)
        return False

    def _further(self, process: tuple[str, str], line: str, logs: Logs) -> bool:
        if place := _PLACE.match(line):
            if self._where is None or origin(place[1]) == "user":
                self._where = Frame(place[1], int(place[2]), place[3])
            return False
        if not _ERROR.match(line):
            return False
        self._open, rank = None, self._ranks.get(process)
        if rank is not None:
            logs.raised.setdefault(rank, Raised(line.strip(), self._where, ended=True))
        else:
            told = "Ray tells of its process, and no line of its rank"
            found = Reaped(-1, int(process[0]), None, line.strip(), self._where, "A worker of Ray", told)
            logs.reaped.setdefault(f"ray {process}", found)
        return True
