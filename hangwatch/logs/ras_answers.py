"""Answers of NCCL's RAS service in files and logs: what `ncclras` prints, as text or as JSON."""

from __future__ import annotations

import re
from pathlib import Path

from hangwatch import ras

from .model import Logs, RasSaid

MARKS = ("CUDA runtime version ", '"nccl_version"')
_TEXT = re.compile(r"^NCCL version \S+ compiled with CUDA ")
_TEXT_GOES_ON = re.compile(r"^CUDA runtime version -?\d+, driver version ")
_KEY = '"nccl_version"'
LONGEST = 20_000  # lines of an answer
LARGEST = 32 << 20  # bytes of one that is a file of its own


class Lines:
    """Takes the lines of one log, one after another. An answer ends where the next one begins, and with the log."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lines: list[str] = []
        self._json, self._count = False, 0

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. True for the line by which an answer is told."""
        if line.startswith("{") or _TEXT.match(line):
            self.end(logs)
            self._lines, self._json = [line], line.startswith("{")
            return _KEY in line and self._whole(line, logs)
        if not self._lines:
            return False
        if len(self._lines) == 1 and not (_KEY in line if self._json else _TEXT_GOES_ON.match(line)):
            self._lines = []
            return False
        self._lines.append(line)
        if self._json and line.startswith("}"):
            return self.end(logs)
        if len(self._lines) >= LONGEST:
            self._lines = []
        return len(self._lines) == 2

    def _whole(self, line: str, logs: Logs) -> bool:
        """An answer in one line."""
        self._lines, self._count = [], self._count + 1
        return _keep(line, self._path, logs, self._count)

    def end(self, logs: Logs) -> bool:
        """No more lines of the answer come; whether there was one."""
        said, self._lines = "\n".join(self._lines), []
        self._count += 1
        return said.count("\n") > 1 and _keep(said, self._path, logs, self._count)


def is_of_json(start: bytes) -> bool:
    """Whether a file's first bytes are those of an answer in JSON."""
    return start.startswith(b"{") and _KEY.encode() in start


def of_file(content: bytes, path: Path, logs: Logs) -> bool:
    """Keep an answer in JSON that is a file of its own. False where it is something else."""
    return is_of_json(content[: 1 << 8]) and _keep(content.decode("utf-8", "replace"), path, logs)


def _keep(said: str, path: Path | None, logs: Logs, place: int = 0) -> bool:
    """A file that is given twice, or the same answer in two files, is one answer."""
    try:
        answer = ras.answer(said)
    except ras.RasError:
        return False
    written = path.stat().st_mtime if path is not None and path.exists() else 0.0
    known = RasSaid(answer, path, place, written)
    again = any((each.path, each.place) == (path, place) for each in logs.ras)
    if not again and not (answer.at is not None and any(each.answer == answer for each in logs.ras)):
        logs.ras.append(known)
    return True
