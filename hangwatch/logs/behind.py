"""What a log says behind the exception of a rank: where the rank or the job goes on, the exception was caught."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from .going_on import Turns
from .last_words import NOT_ITS_OWN
from .model import Logs, Raised
from .tracebacks import Tracebacks

_OF_TROUBLE = re.compile(
    r"warn|err(?:or|ed)\b|fail|could(?:n't| not)|can(?:'t|not)|unable|exception|caught|retry|skip|ignor|broken|corrupt",
    re.IGNORECASE,
)
_OF_THE_JOB = 10  # turns of other ranks, which may make some before they miss one that has ended
_APART = 2  # turns of its own between lines of others: what a buffer held back comes at once
_APART_OF_TORCH = 8  # the same, behind what torch's hook may have printed at the end of a process, which cleans up


@dataclass
class _Followed:
    raised: Raised
    before: int  # turns of the job
    others: int  # lines of others until its last turn
    turns: Turns = field(default_factory=Turns)
    own: int = 0  # lines
    apart: int = 0


class Behind:
    """Takes the lines of one log that no reader keeps."""

    def __init__(self, raised: Tracebacks) -> None:
        self._raised = raised
        self._known: dict[int, _Followed] = {}
        self._now: dict[int, _Followed] = {}  # those that are still followed
        self._seen = -1  # the number of changes to the exceptions that these are of
        self._job = Turns()
        self._lines = self._turned = 0  # behind exceptions, and turns of the job
        self._before: int | None = None  # whose ordinary line the last one was
        self._said = ""  # that line

    def take(self, rank: int | None, line: str, logs: Logs) -> None:
        """`rank` is the one that the line begins with, or that of the file; `line` is without that."""
        self._before = rank if rank is not None and line.strip() and not NOT_ITS_OWN.search(line) else None
        self._said = line
        if not self._raised.followed:
            return
        followed = self._followed(logs)
        self._lines += 1
        if rank is not None and rank in followed:
            self._own(rank, followed[rank], line, logs)
        else:
            self._turned += bool(followed) and self._job.take(line)

    def _followed(self, logs: Logs) -> dict[int, _Followed]:
        """Those of the last exception of each rank."""
        if self._seen == self._raised.changes:
            return self._now
        self._seen = self._raised.changes
        for rank in self._raised.followed:
            raised = logs.raised[rank]
            if rank not in self._known or self._known[rank].raised is not raised:
                self._known[rank] = _Followed(raised, self._turned, self._lines)
        self._now = {rank: self._known[rank] for rank in self._raised.followed}
        return self._now

    def introduced(self, rank: int | None) -> bool:
        """Whether the line before was one of `rank` that tells of trouble, as a program writes of what it caught."""
        return rank is not None and self._before == rank and _OF_TROUBLE.search(self._said) is not None

    def _own(self, rank: int, known: _Followed, line: str, logs: Logs) -> None:
        known.own += 1
        others = self._lines - known.own
        if known.turns.take(line):
            known.apart, known.others = known.apart + (others > known.others), others
            self._raised.went_on(rank, logs)

    def end(self, logs: Logs) -> None:
        for rank, known in self._known.items():
            raised = logs.raised.get(rank)
            told = raised is not None and raised.introduced and self._turned - known.before >= _OF_THE_JOB
            if raised is not None and (told or known.apart >= _enough(raised)):
                logs.raised[rank] = replace(raised, went_on=True)


def _enough(raised: Raised) -> int:
    """Turns of its own: what an ordinary line of the rank introduced, no hook of torch's has printed at its end."""
    return _APART_OF_TORCH if raised.ended and not raised.introduced else _APART


def without_caught(logs: Logs) -> Logs:
    """Where nothing else in the logs tells of a failure, an exception behind which the job went on ended no process."""
    if not any(raised.went_on for raised in logs.raised.values()) or _trouble(logs):
        return logs
    kept = {rank: replace(raised, ended=raised.ended and not raised.went_on) for rank, raised in logs.raised.items()}
    return replace(logs, raised=kept)


def _trouble(logs: Logs) -> bool:
    ended = any(raised.ended and not raised.went_on for raised in logs.raised.values())
    launchers = logs.failures or logs.reaped or logs.tasks or logs.noticed or logs.group_failed or logs.launchers
    return bool(ended or launchers or logs.timeouts or logs.stalls or logs.ended_by or logs.late or logs.kernel)
