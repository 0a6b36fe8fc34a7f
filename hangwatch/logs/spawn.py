"""What torch.multiprocessing.spawn and DeepSpeed's launcher say of a process that failed: its place on its node."""

from __future__ import annotations

import re
import signal
from dataclasses import replace

from hangwatch.model import Frame
from hangwatch.stacks.frames import origin

from .model import Logs, Reaped

MARKS = ("torch.multiprocessing.spawn.Process", "exits with return code = ")
_RAISED = re.compile(r"-- Process (\d+) terminated with the following error:")
_ENDED = re.compile(r"ProcessExitedException: process (\d+) terminated with (?:signal (\w+)|exit code (-?\d+))")
_DEEPSPEED = re.compile(r"--local_rank=(\d+).*\] exits with return code = (-?\d+)")
_PLACE = re.compile(r'^\s+File "([^"]+)", line (\d+), in (\S+)')
_ERROR = re.compile(r"^[A-Za-z_][\w.]*(?:: .*)?$")


class Spawned:
    """Takes the lines of a log, one after another: the traceback of a process follows the line that names it."""

    def __init__(self) -> None:
        self._open = ""
        self._where: Frame | None = None

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. False for a line of no use."""
        if self._open:
            return self._further(line, logs)
        if "-- Process " in line and (raised := _RAISED.search(line)):
            self._open, self._where = f"spawn {raised[1]}", None
            logs.reaped[self._open] = Reaped(int(raised[1]), None, None)
        elif "ProcessExited" in line and (ended := _ENDED.search(line)):
            code = -_number(ended[2]) if ended[2] else int(ended[3])
            logs.reaped[f"spawn {ended[1]}"] = Reaped(int(ended[1]), None, code)
        elif "exits with return code" in line and (left := _DEEPSPEED.search(line)):
            logs.reaped[f"deepspeed {left[1]}"] = Reaped(int(left[1]), None, int(left[2]))
        else:
            return False
        return True

    def _further(self, line: str, logs: Logs) -> bool:
        """A line of the traceback: the first one of an error ends it."""
        if place := _PLACE.match(line):
            if self._where is None or origin(place[1]) == "user":
                self._where = Frame(place[1], int(place[2]), place[3])
        elif _ERROR.match(line):
            known = logs.reaped[self._open]
            logs.reaped[self._open] = replace(known, text=line.strip(), where=self._where)
            self._open = ""
        return True


def _number(name: str) -> int:
    return int(signal.Signals[name]) if name in signal.Signals.__members__ else 0
