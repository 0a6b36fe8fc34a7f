"""A rank's collectives from torch's flight recorder, which only the rank can read: ask, wait a little, fall back.

The rank's helper thread answers by writing `collectives-PID.json` (`records.Collectives`) beside its board. It cannot
while the process is frozen or a C call holds the interpreter lock; then the board's own list has to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hangwatch import wire
from hangwatch.records import CaptureNote, Collectives, Reading

WAIT_S = 0.5
POLL_S = 0.02
LARGEST_ANSWER = 32 << 20

Mark = tuple[int, int, int]


@dataclass(frozen=True)
class Request:
    """A rank that was asked: where its answer will be, what lay there before, or why it could not be."""

    answer_path: Path
    before: Mark | None
    asked_at: float  # seconds since 1970, as files are dated
    began: float  # of the monotonic clock
    failure: str = ""


def ask(board_path: Path, pid: int, request: Callable[[Path, int], None] | None) -> Request:
    """Asks the rank of a board. Never raises."""
    path = board_path.parent / f"collectives-{pid}.json"
    before, failure = _mark(path), ""
    asked_at, began = time.time(), time.monotonic()
    try:
        if request is None:
            failure = "the rank cannot be asked"
        else:
            request(board_path, pid)
    except (OSError, ValueError) as error:
        failure = f"the rank cannot be asked: {error}"
    return Request(path, before, asked_at, began, failure)


def answer(
    request: Request,
    reading: Reading,
    *,
    rank: int | None = None,
    stopped: bool = False,
    sleep: Callable[[float], object] = time.sleep,
) -> tuple[Collectives, CaptureNote]:
    """The rank's answer, which may take until WAIT_S after the question; else what its board says, and why.

    Who is `stopped` is not waited for.
    """
    failure = request.failure or ("the rank is stopped" if stopped else "")
    while not failure:
        if (mark := _mark(request.answer_path)) is not None and mark != request.before:
            try:
                took = max(mark[0] / 1e9 - request.asked_at, 0.0)
                return _complete(_load(request.answer_path), reading), CaptureNote("collectives", True, "", took, rank)
            except (OSError, wire.WireError) as error:
                failure = f"the answer cannot be read: {error}"
        elif time.monotonic() - request.began > WAIT_S:
            failure = f"no answer within {WAIT_S:g} s: the rank is frozen, or a C call holds its interpreter lock"
        else:
            sleep(POLL_S)
    detail = f"{failure}; taken from the board, without call sites"
    return from_board(reading), CaptureNote("collectives", False, detail, time.monotonic() - request.began, rank)


def left_behind(board_path: Path, pid: int, reading: Reading) -> Collectives:
    """What is left of a rank that is gone: an answer that it wrote before it died, else its board."""
    try:
        return _complete(_load(board_path.parent / f"collectives-{pid}.json"), reading)
    except (OSError, wire.WireError):
        return from_board(reading)


def from_board(reading: Reading) -> Collectives:
    """What the board alone tells: heads, and the calls that were issued from Python."""
    return Collectives(reading.heads, reading.calls, reading.open_calls, "board")


def _complete(taken: Collectives, reading: Reading) -> Collectives:
    """Open calls stand on the board only; heads too where the recorder has none."""
    return replace(taken, heads=taken.heads or reading.heads, open_calls=taken.open_calls or reading.open_calls)


def _load(path: Path) -> Collectives:
    with path.open("rb") as file:
        return wire.loads(Collectives, file.read(LARGEST_ANSWER), lenient=True)


def _mark(path: Path) -> Mark | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
