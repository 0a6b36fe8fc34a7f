"""Stacks without ptrace: the rank writes them itself, by faulthandler.

The probe leaves `stacks-PID.txt` beside the board: its first line is a signal's number, and faulthandler appends to it.
The rank's ticker is asked first: it writes while it holds Python's lock, so that no other thread can move, and marks
the end. Where it does not take up the question, no Python thread gets that lock; then the signal is sent that the probe
has registered, and what is appended counts as whole once it stands still.
While Python threads run it is not: faulthandler's handler reads their frames without the lock, and can crash the rank
(Python 3.11.7 with one busy thread: within some hundred signals). A signal whose handler is not there would kill the
rank too, so the kernel is asked first whether the process catches it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hangwatch.model import Frame, ThreadStack
from hangwatch_agent.capture.stacks.own_threads import name_of_own
from hangwatch_agent.capture.stacks.py_spy import Dump
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.own_stacks import END, stacks_file
from hangwatch_agent.shared.procfs import PROC

WAIT_S = 0.5  # after the signal
SILENT_S = 3.0  # a ticker ticks five times a second: one that takes up nothing in this time cannot get Python's lock
POLL_S = 0.02
CALM = 3  # looks that find nothing new: a rank on a busy machine is interrupted in the middle of its dump
LARGEST_DUMP = 1 << 20

_THREAD = re.compile(
    r"(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[(?P<name>[^\]]*)\])?(?: \(.*\))? \(most recent call first\):"
)
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)')


@dataclass(frozen=True)
class Asked:
    """How to ask the rank's ticker, and whether it has begun to answer. Asking may raise OSError or ValueError."""

    request: Callable[[], None]
    taken_up: Callable[[], bool]


def ask_faulthandler(
    pid: int,
    run_dir: Path,
    *,
    ticker: Asked | None = None,
    own_pid: int | None = None,
    proc: Path = PROC,
    sleep: Callable[[float], object] = time.sleep,
) -> Dump:
    """The stacks that the rank itself writes: by its ticker, else by a signal. Never raises; sends no uncaught signal.

    Without a `ticker` that can be asked, the signal is sent at once. `own_pid` is the pid by which the rank calls
    itself, where that differs from the one here.
    """
    path, began = stacks_file(run_dir, own_pid or pid), time.monotonic()
    try:
        stat = procfs.stat_of(pid, proc)
        if stat is not None and stat.state in "Tt":
            return Dump(pid, failure="faulthandler wrote nothing: the rank is stopped")
        number, size = _registered(path)
        appended = _Appended(path, size, lambda: procfs.has_ended(pid, proc), sleep)
        text = _by_ticker(ticker, appended) if ticker is not None else None
        if text is None:
            if not catches(pid, number, proc):
                return Dump(pid, failure=f"the rank does not catch signal {number} (any more)")
            os.kill(pid, number)
            text = appended.within(WAIT_S)
    except (OSError, ValueError) as error:
        return Dump(pid, failure=f"no faulthandler: {error}")
    stacks = tuple(sorted(parse(text), key=lambda stack: not stack.main))
    failure = "" if stacks else f"faulthandler wrote nothing within {time.monotonic() - began:.1f} s"
    return Dump(pid, stacks, failure, time.monotonic() - began)


def _by_ticker(ticker: Asked, appended: _Appended) -> str | None:
    """What the ticker wrote, "" where it is still at it; None where it has not taken up the question in time."""
    ticker.request()
    text = appended.within(SILENT_S, end=END)
    if not text.endswith(END) and ticker.taken_up():
        text = appended.within(WAIT_S, end=END)
    last = text.removesuffix(END).rpartition(END)[2]  # another question may have been answered meanwhile
    return last if last or ticker.taken_up() else None


def catches(pid: int, number: int, proc: Path = PROC) -> bool:
    """Whether a process has a handler of its own for a signal (SigCgt of /proc/PID/status). Raises OSError."""
    for line in procfs.read_text(proc / str(pid) / "status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def parse(text: str) -> Iterator[ThreadStack]:
    """faulthandler's traces as stacks; the last thread that it lists is the main one. Source: CPython, traceback.c."""
    heads = list(_THREAD.finditer(text))
    for position, head in enumerate(heads):
        last = position == len(heads) - 1
        body = text[head.end() : None if last else heads[position + 1].start()]
        frames = _frames(body)
        name = head["name"] or ("MainThread" if last else name_of_own(frames))
        yield ThreadStack(int(head[1], 16), name, frames, main=last, source="faulthandler")


def _frames(body: str) -> tuple[Frame, ...]:
    found = _FRAME.finditer(body)
    return tuple(
        Frame(frame["file"], int(frame["line"]) if frame["line"].isdigit() else 0, frame["function"]) for frame in found
    )


def _registered(path: Path) -> tuple[int, int]:
    """The signal that faulthandler waits for, and how much it has written so far. Raises OSError or ValueError."""
    with path.open("rb") as file:
        number = int(file.readline(16))
        if not 1 <= number <= 64:
            raise ValueError(f"{number} is no signal")
        return number, os.fstat(file.fileno()).st_size


@dataclass(frozen=True)
class _Appended:
    """What a rank appends to its file of `size` bytes; nothing more is awaited once it `has_ended`."""

    path: Path
    size: int
    has_ended: Callable[[], bool]
    sleep: Callable[[float], object]

    def within(self, seconds: float, *, end: str = "") -> str:
        """The text up to `end`, else once it has stopped growing: faulthandler does not say when it is done."""
        text, calm, deadline = "", 0, time.monotonic() + seconds
        while calm < CALM and time.monotonic() < deadline and not self.has_ended():
            self.sleep(POLL_S)
            with contextlib.suppress(OSError):
                before, text = text, _from(self.path, self.size)
                if end and text.endswith(end):
                    return text
                calm = calm + 1 if text and text == before and not end else 0
        return text


def _from(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        if offset <= os.fstat(file.fileno()).st_size:
            file.seek(offset)
        else:  # it begins anew when it has grown large
            file.readline()
        return file.read(LARGEST_DUMP).decode("utf-8", "replace")
