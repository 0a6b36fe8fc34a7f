"""Whether a job went on behind a warning: NCCL warns of much that it then does without; a job that fails ends there.

The program's own lines tell it where they come again and again and count something up, as steps and progress bars do.
"""

from __future__ import annotations

import re

from .model import Logs

_NUMBER = re.compile(r"\d+")
_DATE = re.compile(r"\d{2,4}-\d\d-\d\d|\d{1,2}/\d{1,2}/\d{2,4}|\d\d:\d\d:\d\d(?:[.,]\d+)?")
_OF_A_STACK = re.compile(r"^\s*(?:frame #\d|#\d+ |File \"|Fatal Python error)")
_OF_THE_PROGRAM = 3  # lines of one shape that count up
_NOT_ITS_OWN = re.compile(r"NCCL|ProcessGroup|\[rank\d+\]|\.cpp:\d+|torch\.distributed|torch/distributed")
_WAITS = re.compile(r"wait|retr(?:y|ies)|attempt|time[ds]?[ -]?out|stuck|stall|heartbeat|error|fail", re.IGNORECASE)
_LONGEST = 400  # characters of a line that make its shape
_SHAPES = 64  # that are followed at a time


class Turns:
    """Counts how often the program's own lines have counted something up, such as a step; dates do not count."""

    def __init__(self) -> None:
        self._known: dict[str, list[int | None]] = {}  # by shape: the most of each number, None of one that went down

    def take(self, line: str) -> bool:
        """Whether a number that has only ever grown has grown again."""
        said = _DATE.sub("", line[:_LONGEST])
        if _NOT_ITS_OWN.search(said) or _WAITS.search(said) or _OF_A_STACK.search(said):
            return False
        numbers = [int(each) for each in _NUMBER.findall(said) if len(each) < _LONGEST >> 4]
        shape = _NUMBER.sub("#", said)
        if shape not in self._known:
            if len(self._known) >= _SHAPES:
                self._known.pop(next(iter(self._known)))
            self._known[shape] = [*numbers]
            return False
        known = self._known[shape]
        grown = [most is not None and number > most for number, most in zip(numbers, known, strict=False)]
        self._known[shape] = [
            None if most is None or number < most else number for number, most in zip(numbers, known, strict=False)
        ]
        return any(grown)


class GoingOn:
    """Takes the lines of one log behind its warnings, and notes of these that the job went on."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._of_other_files = {text: frozenset(known.pending) for text, known in logs.warnings.items()}
        self._counted: dict[str, list[tuple[int, ...]]] = {}

    def take(self, line: str, *, of_use: bool) -> None:
        """`of_use` says that another reader has kept the line: such a line is none of the program's steps."""
        if not self._logs.warnings or of_use or _NOT_ITS_OWN.search(line):
            return
        if all(known.pending <= self._others(text) for text, known in self._logs.warnings.items()):
            self._counted.clear()
            return
        pieces = line[: _LONGEST << 3].split("\r")  # as progress bars write over themselves
        if any(self._counts_up(piece[:_LONGEST]) for piece in pieces):
            for text, known in self._logs.warnings.items():
                known.pending &= self._others(text)

    def _others(self, text: str) -> frozenset[tuple[str, int]]:
        return self._of_other_files.get(text, frozenset())

    def _counts_up(self, line: str) -> bool:
        numbers = tuple(int(each) for each in _NUMBER.findall(line) if len(each) < _LONGEST >> 4)
        if not numbers or _WAITS.search(line):
            return False
        shape = _NUMBER.sub("#", line)
        if shape not in self._counted and len(self._counted) >= _SHAPES:
            self._counted.pop(next(iter(self._counted)))
        known = self._counted.setdefault(shape, [])
        known.append(numbers)
        del known[:-_OF_THE_PROGRAM]
        series = zip(*known, strict=False)
        return len(known) == _OF_THE_PROGRAM and any(list(each) == sorted(set(each)) for each in series)
