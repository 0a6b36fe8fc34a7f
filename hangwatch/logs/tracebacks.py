"""Tracebacks of ranks in a log, and the stacks that Python's faulthandler writes of a crash.

What torch's hook prints of an exception that ends a process begins with `[rank3]:`. A traceback without that, in a file
of one rank, may be of an exception that was caught: it completes what torchrun says of the rank, and is no failure by
itself. Tracebacks of several ranks may be mixed line by line. Of exceptions that one handler raised after another, the
first tells why: what followed it, as a collective in a `finally` block that no other rank came to, is a consequence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from hangwatch.model import Frame, ThreadStack
from hangwatch.stacks.frames import origin

from .model import Logs, Raised

_OF_A_WORKER = "Original Traceback (most recent call last)"
_TURNS = 10  # that a job may make behind the exception of a rank, on whose way out it is
_CRASH = "Fatal Python error: "
_CRASHED = "Current thread "
_STACKS = (_CRASHED, "Thread ")
MARKS = ("Traceback (most recent call last)", _CRASH)
_PREFIX = re.compile(r"^\[rank(\d+)\]: ?(.*)$")
_PLACE = re.compile(r'^\s+File "([^"]+)", line (\d+),? in (\S+)')
_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?:: .*)?$")
_ALONE = re.compile(r"^\[rank(\d+)\]: ([A-Za-z_][\w.]*(?:Error|Exception): .*)$")  # torch's hook, by its last line
_WHILE_HANDLED = "During handling of the above exception"
_MADE_OF_IT = "The above exception was the direct cause"
_INTERRUPT = "KeyboardInterrupt"  # by which a person ends a job that stands: its traceback is a stack
_ASKED = ("SystemExit", _INTERRUPT)
_OF_LAUNCHERS = ("torch.distributed.elastic.", "torch.multiprocessing.", "subprocess.")
_LAUNCHES = re.compile(r"accelerate/commands/|deepspeed/launcher/|lightning/fabric/cli")
_OF_A_LOADER = re.compile(r"DataLoader worker \(pid")
_A_WORKER_ENDED = re.compile(r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly")
_ABORTED = ("Aborted", "Terminated")  # as by torch's watchdog, whose words say more
# What a process says that ended because another rank had gone, or had not come.
_BROUGHT_DOWN = re.compile(
    r"watchdog|timed? ?out|connection (?:reset|closed|refused)|reset by peer|NCCL (?:communicator|error)"
    r"|monitoredBarrier|remote (?:process|error)|DistBackendError|DistNetworkError|broken pipe"
    r"|SignalException|SIGTERM|Signal 15",
    re.IGNORECASE,
)


def brought_down(text: str) -> bool:
    """A process that says so ended because another rank had gone, or had not come."""
    return bool(_BROUGHT_DOWN.search(text))


def crashed(text: str) -> bool:
    """The words of faulthandler."""
    return text.startswith(_CRASH)


@dataclass
class _Open:
    """A traceback that is being read, or the stack of a crash; `before` is the exception in whose handling it came."""

    ended: bool
    where: Frame | None = None
    crash: str = ""
    before: Raised | None = None
    handled: bool = False  # else it was made of that one on purpose
    elsewhere: bool = False  # the stack of a crash that is being read is of another thread
    stacks: int = 0
    introduced: bool = False  # a line of its rank that tells of trouble stands before it
    frames: list[Frame] = field(default_factory=list)  # the outermost first


class Tracebacks:
    """Takes the lines of a log, one after another."""

    def __init__(self) -> None:
        self._open: dict[int | None, _Open] = {}  # None: no line tells whose it is
        self._told: dict[int | None, Raised] = {}  # what each has raised last
        self._chained: dict[int | None, bool] = {}  # those whose next traceback belongs to it, and whether as `handled`
        self._last: int | None = None  # whose traceback ended with the last line
        self.changes = 0  # how often the ranks that are followed, or their exceptions, have changed
        self._turns: dict[int, int] = {}  # how often the program counted up behind the exception of each rank

    def take(self, line: str, logs: Logs, rank: int | None, *, introduced: bool = False) -> bool:
        """Keep what a line says; `rank` is that of the file, where its name tells. False for a line of no use.

        `introduced` says that the line before was one of the same rank that tells of trouble.
        """
        if line.strip():
            self._last = None
        if "[rank" in line and (alone := _ALONE.match(line)) and self._knows_none_of(int(alone[1]), logs):
            return self._keep(int(alone[1]), Raised(alone[2].strip(), ended=True, introduced=True), logs)
        if not (self._open or self._told) and not any(mark in line for mark in MARKS):
            return False
        prefix = _PREFIX.match(line)
        whose, said = (int(prefix[1]), prefix[2]) if prefix else (rank, line)
        if said.startswith(_OF_A_WORKER):  # the exception before it was made of this one, in another process
            self._open[whose] = _Open(prefix is not None, before=self._told.pop(whose, None))
            return False
        if said.startswith(MARKS[0]):
            self._finish(whose, logs)
            handled = self._chained.pop(whose, None)
            before = self._told.pop(whose, None)
            chained = before if handled is not None else None
            self._open[whose] = _Open(
                prefix is not None, before=chained, handled=bool(handled), introduced=introduced and chained is None
            )
            return False
        if said.startswith(_CRASH) and not said.removeprefix(_CRASH).startswith(_ABORTED):
            self._open[whose] = _Open(ended=True, crash=said.strip())
            return False
        if said.startswith((_WHILE_HANDLED, _MADE_OF_IT)):
            self._chained[whose] = said.startswith(_WHILE_HANDLED)
        known = self._open.get(whose)
        if known is not None and known.crash and said.startswith(_STACKS):
            known.elsewhere = not said.startswith(_CRASHED)
            known.stacks, known.where = known.stacks + 1, None
        return known is not None and self._further(whose, known, said, logs)

    def _knows_none_of(self, rank: int, logs: Logs) -> bool:
        """Whether no traceback of a rank is being read, or has been: a filter may have left its last line alone."""
        return rank not in self._open and rank not in logs.raised and rank not in logs.caught

    def _further(self, rank: int | None, known: _Open, said: str, logs: Logs) -> bool:
        if place := _PLACE.match(said):
            return self._at(rank, known, Frame(place[1], int(place[2]), place[3]), logs)
        if not known.crash and said[:1].strip() and (found := _ERROR.match(said)):
            del self._open[rank]
            of_launcher = _is_of_launcher(found[1], known.frames)
            logs.group_failed = logs.group_failed or of_launcher
            raised = _first(known, Raised(said.strip(), known.where, known.ended, introduced=known.introduced))
            if rank is None:
                keep_nameless(raised, known.before, logs)
            if rank is None or found[1] not in _ASKED:
                self._told[rank] = raised
            if rank is not None and found[1] not in _ASKED:
                return self._keep(rank, raised, logs)
            if rank is not None and found[1] == _INTERRUPT:
                _keep_stack(rank, known.frames, logs)
            return of_launcher
        return False

    def _at(self, rank: int | None, known: _Open, place: Frame, logs: Logs) -> bool:
        """A traceback names its outermost call first, the stack of a crash the innermost."""
        user = origin(place.file) == "user"
        known.frames.append(place)
        if known.crash:
            if known.where is None or (user and origin(known.where.file) != "user"):
                known.where = place
            if user and not known.elsewhere:
                del self._open[rank]
                return self._crashed(rank, known, logs)
        elif user or known.where is None:
            known.where = place
        return False

    def _keep(self, rank: int, raised: Raised, logs: Logs) -> bool:
        late = any(each.rank == rank for each in logs.timeouts)
        logs.raised[rank] = replace(raised, late=late)
        logs.ranks.add(rank)
        self._last, self._turns[rank] = rank, 0
        self.changes += 1
        return True

    def _crashed(self, rank: int | None, known: _Open, logs: Logs) -> bool:
        where = None if known.elsewhere and known.stacks > 1 else known.where  # of several, any may have crashed
        raised = Raised(known.crash, where, ended=True)
        if rank is not None:
            return self._keep(rank, raised, logs)
        logs.nameless[raised] = None
        return False

    @property
    def followed(self) -> Collection[int]:
        """Ranks of which further lines may show that they went on behind their exceptions."""
        return self._turns

    def went_on(self, rank: int, logs: Logs) -> None:
        """That rank has counted something up: where it does so again and again, its exception was caught."""
        self._turns[rank] += 1
        if self._turns[rank] >= _TURNS:
            del self._turns[rank]
            self.changes += 1
            if (caught := logs.raised.pop(rank, None)) is not None:
                logs.caught[rank] = replace(caught, ended=False, went_on=True)

    def end(self, logs: Logs) -> bool:
        """The file has ended; whether that told of a crash."""
        if self._last is not None:
            logs.raised[self._last] = replace(logs.raised[self._last], last=True)
        finished = [self._finish(rank, logs) for rank in list(self._open)]  # all of them
        return any(finished)

    def _finish(self, rank: int | None, logs: Logs) -> bool:
        """A crash is told also where no line of the program's stood in the stack of its thread."""
        known = self._open.pop(rank, None)
        return known is not None and bool(known.crash) and self._crashed(rank, known, logs)


def _is_of_launcher(error: str, frames: Sequence[Frame]) -> bool:
    """Whether a launcher says so that the process which it has started failed."""
    return error == "subprocess.CalledProcessError" and bool(frames) and bool(_LAUNCHES.search(frames[-1].file))


def _first(known: _Open, raised: Raised) -> Raised:
    """Of a chain the exception that tells why; one that the program made of another on purpose says so itself.

    Where the first one came from another rank's end, what followed it did so too.
    """
    first = known.before
    if first is not None and _A_WORKER_ENDED.search(raised.text) and _OF_A_LOADER.search(first.text):
        return replace(raised, text=first.text)  # by which signal a worker ended, torch's handler of that has said
    if first is None or not (known.handled or brought_down(first.text) or brought_down(raised.text)):
        return raised
    return replace(first, ended=raised.ended, then=raised.text)


def _keep_stack(rank: int, frames: list[Frame], logs: Logs) -> None:
    """It is no failure, and may be of a job that a person ended for another reason."""
    stack = ThreadStack(0, "MainThread", tuple(reversed(frames)), main=True, source="error")
    logs.stacks.setdefault(rank, (None, (stack,)))


def of_chain(text: str) -> Raised | None:
    """The exception that tells why, from the text of a whole traceback."""
    logs, reader = Logs(), Tracebacks()
    for line in text.splitlines():
        reader.take(line, logs, 0)
    return logs.raised.get(0)


def keep_nameless(raised: Raised, before: Raised | None, logs: Logs) -> None:
    """It is no failure by itself; a launcher's own exceptions follow from those of its processes."""
    if before is not None:
        logs.nameless.pop(before, None)
    if not raised.text.startswith((*_ASKED, *_OF_LAUNCHERS)):
        logs.nameless[raised] = None
