"""A rank's collectives from torch's flight recorder, which only the rank can read: ask, wait a little, fall back.

The rank's helper thread answers by writing `collectives-PID.json` (`records.Collectives`) beside its board. It cannot
while the process is frozen or a C call holds the interpreter lock; then the board's own list has to do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hangwatch.model import CaptureNote, Collectives, Phase, Reading
from hangwatch.ranks.view import OVER
from hangwatch.wire import codec
from hangwatch_agent.board.collectives import from_board, with_later_calls

WAIT_S = 0.5  # where the machine has nothing else to do
MOST_S = 5.0  # and where it is busy, or the rank is known to be at it
POLL_S = 0.02
LATE_NAP = 2.0  # times as long as wanted: a nap on an idle machine may be
LARGEST_ANSWER = 32 << 20
_LEAVING = (OVER - {Phase.DESTROYED}) | {Phase.FAILED}

Mark = tuple[int, int, int]


@dataclass(frozen=True)
class Request:
    """A rank that was asked: where its answer will be, what lay there before, or why it could not be."""

    answer_path: Path
    before: Mark | None
    asked_at: float  # seconds since 1970, as files are dated
    began: float  # of the monotonic clock
    failure: str = ""
    taken_up: Callable[[], bool] = lambda: False  # whether the rank's ticker has begun to answer


class Patience:
    """How long an answer is waited for: longer where the rank's ticker has to queue for a processor.

    The machine is slow by the threads that want a processor for each that it has (`load`), or by how late our own naps
    end: a container that is held to its share of processor time sees no load and is slow all the same.
    """

    def __init__(self, load: Callable[[], float]) -> None:
        self._load = load
        self._late = 1.0

    def napped(self, wanted_s: float, took_s: float) -> None:
        self._late = max(self._late, took_s / wanted_s / LATE_NAP)

    def most_s(self, taken_up: bool) -> float:
        """Seconds since the question."""
        return MOST_S if taken_up else min(MOST_S, WAIT_S * max(1.0, self._late, self._load()))


def load(loadavg: Path = Path("/proc/loadavg"), processors: int | None = None) -> float:
    """Threads that run or want to, for each processor that we may use; 0.0 where it is not known. Source: proc(5)."""
    try:
        running = int(loadavg.read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return running / (processors or len(os.sched_getaffinity(0)))


def ask(
    board_path: Path,
    pid: int,
    request: Callable[[Path, int], None] | None,
    taken_up: Callable[[Path], bool] = lambda path: False,
) -> Request:
    """Asks the rank of a board; `taken_up` says whether it has begun to answer. Never raises."""
    path = _answer_path(board_path, pid)
    before, failure = _mark(path), ""
    asked_at, began = time.time(), time.monotonic()
    try:
        if request is None:
            failure = "the rank cannot be asked"
        else:
            request(board_path, pid)
    except (OSError, ValueError) as error:
        failure = f"the rank cannot be asked: {error}"
    return Request(path, before, asked_at, began, failure, lambda: taken_up(board_path))


def answer(
    request: Request,
    reading: Reading,
    *,
    rank: int | None = None,
    stopped: bool = False,
    ended: bool = False,
    sleep: Callable[[float], object] = time.sleep,
    load: Callable[[], float] = load,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Collectives, CaptureNote]:
    """The rank's answer; else what its board says, and why.

    The answer is waited for until WAIT_S after the question on a machine that has nothing else to do, MOST_S where it
    is busy or the rank is at it. A rank that is `stopped` or has `ended` is not waited for.
    """
    if ended:
        detail = "the rank has ended: its calls are those on its board"
        return _left_behind(request.answer_path, reading), CaptureNote("collectives", True, detail, 0.0, rank)
    patience = Patience(load)
    failure = request.failure or ("the rank is stopped" if stopped else "")
    while not failure:
        if (mark := _mark(request.answer_path)) is not None and mark != request.before:
            try:
                took = min(max(mark[0] / 1e9 - request.asked_at, 0.0), clock() - request.began)  # a clock may be set
                return _complete(_load(request.answer_path), reading), CaptureNote("collectives", True, "", took, rank)
            except (OSError, codec.WireError) as error:
                failure = f"the answer cannot be read: {error}"
        elif (waited := clock() - request.began) > patience.most_s(request.taken_up()):
            failure = f"no answer within {waited:.1f} s: {_why_silent(reading)}"
        else:
            before_nap = clock()
            sleep(POLL_S)
            patience.napped(POLL_S, clock() - before_nap)
    detail = f"{failure}; taken from the board, without the calls that C++ code issued"
    return from_board(reading), CaptureNote("collectives", False, detail, clock() - request.began, rank)


def _why_silent(reading: Reading) -> str:
    if reading.phase in _LEAVING:
        return "the rank is on its way out of its program"
    return "the rank is frozen, or a C call holds its interpreter lock"


def left_behind(board_path: Path, pid: int, reading: Reading) -> Collectives:
    """What is left of a rank that is gone: its board, and an answer that it wrote some time before it died."""
    return _left_behind(_answer_path(board_path, pid), reading)


def _left_behind(answer: Path, reading: Reading) -> Collectives:
    try:
        return with_later_calls(_load(answer), reading)
    except (OSError, codec.WireError):
        return from_board(reading)


def _answer_path(board_path: Path, pid: int) -> Path:
    return board_path.parent / f"collectives-{pid}.json"


def _complete(taken: Collectives, reading: Reading) -> Collectives:
    """Open calls stand on the board only; heads too where the recorder has none."""
    return replace(taken, heads=taken.heads or reading.heads, open_calls=taken.open_calls or reading.open_calls)


def _load(path: Path) -> Collectives:
    with path.open("rb") as file:
        return codec.loads(Collectives, file.read(LARGEST_ANSWER), lenient=True)


def _mark(path: Path) -> Mark | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
