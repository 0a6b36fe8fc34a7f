"""The watchdog's log of its own looks: why each was taken, how long its parts took, and what it came to.

It answers the question that a report cannot: why there was none. It is kept in memory, and written beside the reports
where a job had an incident, or was ended while it stood still.
"""

from __future__ import annotations

import platform
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hangwatch.looks import Reason
from hangwatch.model import Judgement
from hangwatch.report import files
from hangwatch.report.words import clean
from hangwatch.version import __version__
from hangwatch.words import duration, plural
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.watchdog.incidents import Incidents

MOST = 500  # looks that are kept: a day of a job that is looked at every three minutes


@dataclass
class Look:
    """One look. Times are in seconds since 1970; None: it has not come so far."""

    reasons: tuple[str, ...]
    began_at: float
    taken_at: float | None = None  # the evidence was there
    ended_at: float | None = None
    came_to: str = ""

    def __str__(self) -> str:
        why = ", ".join(self.reasons) or "the end of the job"
        if self.taken_at is None:
            return f"look ({why}): {self.came_to or 'evidence is being taken'}"
        evidence = f"evidence after {self.taken_at - self.began_at:.2f} s"
        if self.ended_at is None:
            return f"look ({why}): {evidence}, not yet judged"
        return f"look ({why}): {evidence}, judged after {self.ended_at - self.taken_at:.2f} s more: {self.came_to}"


@dataclass
class LookLog:
    """The looks of one watchdog. `clock` gives seconds since 1970."""

    clock: Callable[[], float]
    looks: deque[Look] = field(default_factory=lambda: deque(maxlen=MOST))
    polls: int = 0
    slowest_poll_s: float = 0.0
    _poll_since: float | None = None  # the poll that is under way
    _polled_at: float | None = None
    _stood_s: float = 0.0  # without progress, for longer than is usual, when the job was asked to end
    _stood: tuple[RankState, ...] = ()  # the ranks at that moment

    @contextmanager
    def poll(self) -> Iterator[None]:
        """One round over the boards, with the look that it may take."""
        self._poll_since = self.clock()
        try:
            yield
        finally:
            self._polled_at = self.clock()
            self.slowest_poll_s = max(self.slowest_poll_s, self._polled_at - self._poll_since)
            self._poll_since = None
            self.polls += 1

    @contextmanager
    def look(self, reasons: Sequence[Reason]) -> Iterator[Look]:
        """One look, from its start: one that never ends is in the log, too."""
        look = Look(tuple(dict.fromkeys(reason.kind for reason in reasons)), self.clock())
        self.looks.append(look)
        try:
            yield look
        except Exception as error:
            look.came_to = f"failed ({type(error).__name__}: {error})"
            raise
        finally:
            look.ended_at = self.clock()

    def job_was_asked_to_end(self, stood_s: float, rank_states: tuple[RankState, ...]) -> None:
        """Note how the ranks stand. `stood_s`: seconds without progress, 0 where these are not more than usual."""
        self._stood_s, self._stood = stood_s, rank_states

    def text(self, rank_states: Sequence[RankState]) -> str:
        """The log for people, with the ranks as they were seen last."""
        polls = [f"{plural(self.polls, 'poll')}, the slowest of {self.slowest_poll_s:.2f} s"]
        if self._polled_at is not None:
            polls.append(f"the last ended at {_stamp(self._polled_at)}")
        if self._poll_since is not None:
            polls.append(f"one is under way since {_stamp(self._poll_since)}")
        lines = [
            f"hangwatch {__version__}: the watchdog's looks, written at {_stamp(self.clock())} (UTC)",
            "; ".join(polls),
            *(f"{_stamp(look.began_at)} {look}" for look in tuple(self.looks)),
            "the ranks, as their boards were read last:",
            *map(_rank, rank_states),
        ]
        return "\n".join(lines) + "\n"

    def keep(self, run: str, incidents: Incidents, rank_states: Sequence[RankState], *, always: bool) -> None:
        """Write it whole where there is a report that it belongs to, or should have been one; with `always` anyway."""
        in_vain = not incidents.is_any and self._stood_s > 0
        if not (incidents.is_any or in_vain or always):
            return
        path = Path(incidents.report_dir) / f"watchdog-{run}-{platform.node()}.log"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_text(path, self.text(self._stood or rank_states))
        except (OSError, files.ReportError) as error:
            incidents.say_once("log", f"hangwatch: no log of the watchdog's looks: {error}")
            return
        if in_vain:
            incidents.say_once(
                "log",
                f"hangwatch: the job was ended after {duration(self._stood_s)} without progress, before this node had"
                f" reported anything{self._last_said()}; {path} says what the watchdog saw",
            )

    def _last_said(self) -> str:
        """What the last look came to, if it was judged."""
        told = next((look for look in reversed(self.looks) if look.taken_at is not None and look.came_to), None)
        return f"; its last look came to: {told.came_to.rstrip('.')}" if told is not None else ""


def outcome(judgement: Judgement) -> str:
    """`waiting, user-code-blocked (likely): rank 3 ...`"""
    verdict = judgement.verdict
    return f"{judgement.status}, {verdict.cause} ({verdict.certainty}): {clean(verdict.summary) or 'no sentence'}"


def _rank(each: RankState) -> str:
    reading = each.reading
    calls = ", ".join(f"{call.op} {call.seq} of {call.group or 'the default group'}" for call in reading.open_calls)
    return (
        f"rank {each.rank} (pid {each.pid}): {'lives' if each.alive else 'has ended'}, state {each.state},"
        f" phase {reading.phase}, moved last at {_stamp(each.moved_at)},"
        f" {'may wait for others' if each.blocked else 'does not wait for others'}"
        f"{f', open: {calls}' if calls else ''}"
    )


def _stamp(at: float) -> str:
    """`17:20:03.4`"""
    return time.strftime("%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 10)}"
