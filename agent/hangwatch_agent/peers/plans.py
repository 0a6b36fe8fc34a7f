"""What the ranks of all nodes are going to do, side by side, where nodes share a report directory and no dashboard.

Each node keeps one file in `plans-JOB` there, `NODE.json` (`Shown`). It is written when the plans change, and touched
while the node lives. A node that compares reads all of them. The work is done in a thread of its own: a file server
that hangs costs these comparisons, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hangwatch.errors import HangwatchError
from hangwatch.health import Confirmed, forecasts_of
from hangwatch.model import HealthWarning, NodeHello
from hangwatch.report import files
from hangwatch.wire import codec

LOOK_S = 4.0  # between two looks
FRESH_S = 9.0  # a file that was touched within belongs to a node that lives. Less than a forecast must stand
# (`CONFIRMED_S`), so that what a killed run has left never makes one
LEFT_S = 600.0  # a file that was not touched for so long is removed by the next node that compares
LARGEST = 8 << 20
MOST_RANKS = 1024  # a larger job wants a dashboard
LEAVE_S = 2.0
SPREAD_S = 9.0  # from a forecast until it is acted upon: by then each node has looked, and knows of it


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """Starts the work."""
    thread = threading.Thread(target=work, name="hangwatch-plans", daemon=True)
    thread.start()
    return thread


@dataclass(frozen=True)
class Told:
    """A forecast that a node has made, and when, by the file server's clock."""

    at: float
    warning: HealthWarning


@dataclass(frozen=True)
class Shown:
    """A node's file: what it is going to do, and what it knows of all nodes."""

    hello: NodeHello
    told: tuple[Told, ...] = ()


touch = os.utime  # gives a file the file server's time


class SharedPlans:
    """One node's plans among those of all nodes.

    Args:
        report_dir: the directory that the nodes share.
        node: this node's name, unique to this watchdog.
        start: does the work aside; gives the thread that does it.
    """

    def __init__(
        self, report_dir: str, node: str, *, start: Callable[[Callable[[], None]], threading.Thread | None] = in_thread
    ) -> None:
        self._report_dir, self._name = Path(report_dir), f"{re.sub(r'[^A-Za-z0-9_.-]', '_', node)[:100]}.json"
        self._start = start
        self._thread: threading.Thread | None = None
        self._folder: Path | None = None
        self._looked_at = -LOOK_S
        self._ahead_s = 0.0  # the file server's clock minus ours
        self._written = ""
        self._seen: tuple[Shown, ...] | None = None  # what the last look has found, this node's own file included
        self._known: dict[str, tuple[str, Shown | None]] = {}  # by file: its text, and what that says
        self._confirmed = Confirmed()
        self._told: dict[str, Told] = {}  # by kind
        self._returned: set[str] = set()

    def compare(self, own: Callable[[], NodeHello], now: float, *, judging: bool) -> tuple[HealthWarning, ...]:
        """The forecasts that are new; with `judging` off this node only shows its plans. One call a poll.

        What one node has found is returned on all nodes that judge at about the same moment, so that those that end the
        job do it together.

        Args:
            own: gives this node's ranks; `job.id` is the name that all nodes have for the job.
            now: a clock that is never set, in seconds.
        """
        if self._thread is not None and self._thread.is_alive():
            return ()
        seen, self._seen = self._seen, None
        if seen is not None and judging:
            self._judge(seen, now)
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._begin(own(), now, judging)
        return self._due(now)

    def _judge(self, seen: tuple[Shown, ...], now: float) -> None:
        self._confirmed.note(forecasts_of([each.hello for each in seen], now), now)
        new = [Told(now + self._ahead_s, each) for each in self._confirmed.due(now)]
        for told in (*(told for other in seen for told in other.told), *new):
            known = self._told.setdefault(told.warning.kind, told)
            if told.at < known.at:  # the node that found it first sets the moment for all
                self._told[told.warning.kind] = told
        if new:
            self._looked_at = -LOOK_S  # the other nodes are to know at once

    def _due(self, now: float) -> tuple[HealthWarning, ...]:
        due = {kind for kind, told in self._told.items() if now + self._ahead_s - told.at >= SPREAD_S}
        new = due - self._returned
        self._returned |= new
        return tuple(self._told[kind].warning for kind in sorted(new))

    def _begin(self, own: NodeHello, now: float, judging: bool) -> None:
        if (own.job.world_size or 0) <= MOST_RANKS:
            shown = Shown(own, tuple(self._told.values()))
            self._thread = self._start(lambda: self._look(shown, now, judging))

    def leave(self) -> None:
        """Removes what this node has shown, and the folder where it was the last. Waits LEAVE_S at most."""
        if self._thread is not None:
            self._thread.join(LEAVE_S)
        if (folder := self._folder) is not None and not (self._thread is not None and self._thread.is_alive()):
            last = self._start(lambda: _remove(folder, self._name))
            if last is not None:
                last.join(LEAVE_S)

    def _look(self, own: Shown, now: float, judging: bool) -> None:
        with contextlib.suppress(OSError, ValueError, HangwatchError):
            self._folder = self._report_dir / f"plans-{re.sub(r'[^A-Za-z0-9._-]+', '_', own.hello.job.id)[:100]}"
            facts = self._show(self._folder, codec.dumps(own))
            self._ahead_s = facts.st_mtime - now
            self._seen = (*self._living(self._folder, own.hello.job.id, facts), own) if judging else None

    def _show(self, folder: Path, text: str) -> os.stat_result:
        """Writes or touches this node's file. What it gives has the file server's time, which all nodes share."""
        path = folder / self._name
        if text != self._written or not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_text(path, text)
            self._written = text
        touch(path)
        return path.stat()

    def _living(self, folder: Path, job: str, own: os.stat_result) -> list[Shown]:
        found = []
        for name in os.listdir(folder):
            if name.endswith(".json") and name != self._name:
                with contextlib.suppress(OSError):
                    text, age_s = _read(folder / name, own)
                    if age_s > LEFT_S:
                        (folder / name).unlink()
                    elif age_s <= FRESH_S:
                        found.append(self._parsed(name, text))
        return [each for each in found if each is not None and each.hello.job.id == job]

    def _parsed(self, name: str, text: str) -> Shown | None:
        known = self._known.get(name)
        if known is not None and known[0] == text:
            return known[1]
        try:
            shown: Shown | None = codec.loads(Shown, text, lenient=True)
        except codec.WireError:
            shown = None
        self._known[name] = text, shown
        return shown


def _read(path: Path, own: os.stat_result) -> tuple[str, float]:
    """The text of a file of the same user, and the seconds since it was touched. Raises OSError for other files.

    It is opened before it is looked at, because a network file system then asks its server.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != own.st_uid or facts.st_size > LARGEST:
            raise OSError(f"{path} is none of ours")
        return file.read(LARGEST).decode(errors="replace"), own.st_mtime - facts.st_mtime


def _remove(folder: Path, name: str) -> None:
    with contextlib.suppress(OSError):
        (folder / name).unlink(missing_ok=True)
        folder.rmdir()
