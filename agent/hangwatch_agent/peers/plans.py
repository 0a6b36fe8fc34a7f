"""What the ranks of all nodes are going to do, side by side, where nodes share a report directory and no dashboard.

A node that compares reads what all of them show (`plan_files`). The work is done in a thread of its own: a file server
that hangs costs these comparisons, and nothing else.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from hangwatch.errors import HangwatchError
from hangwatch.health import Confirmed, forecasts_of
from hangwatch.model import HealthWarning, NodeHello
from hangwatch_agent.peers.plan_files import PlanFiles, Shown, Told

LOOK_S = 4.0  # between two looks
MOST_RANKS = 1024  # a larger job wants a dashboard
LEAVE_S = 2.0
SPREAD_S = 9.0  # from a forecast until it is acted upon: by then each node has looked, and knows of it
EARLY_S = 3.0  # by which another node may be earlier: its polls are at other moments, clocks are read under load


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """Starts the work."""
    thread = threading.Thread(target=work, name="hangwatch-plans", daemon=True)
    thread.start()
    return thread


class SharedPlans:
    """One node's plans among those of all nodes.

    Args:
        files: this node's file and those of the others.
        start: does the work aside; gives the thread that does it.
    """

    def __init__(
        self, files: PlanFiles, *, start: Callable[[Callable[[], None]], threading.Thread | None] = in_thread
    ) -> None:
        self._files = files
        self._start = start
        self._thread: threading.Thread | None = None
        self._looked_at = -LOOK_S
        self._ahead_s = 0.0  # the file server's clock minus ours
        self._seen: tuple[Shown, ...] | None = None  # what the last look has found, this node's own file included
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
        if self._thread is None or not self._thread.is_alive():
            seen, self._seen = self._seen, None
            if seen is not None and judging:
                self._judge(seen, now)
            if now - self._looked_at >= LOOK_S:
                self._looked_at = now
                self._begin(own(), now, judging)
        return self._due(now, SPREAD_S)

    def acted_upon(self, now: float) -> tuple[HealthWarning, ...]:
        """The forecasts that are new, and that another node may have acted upon already."""
        return self._due(now, SPREAD_S - EARLY_S)

    def _judge(self, seen: tuple[Shown, ...], now: float) -> None:
        self._confirmed.note(forecasts_of([each.hello for each in seen], now), now)
        new = [Told(now + self._ahead_s, each) for each in self._confirmed.due(now)]
        for told in (*(told for other in seen for told in other.told), *new):
            known = self._told.setdefault(told.warning.kind, told)
            if told.at < known.at:  # the node that found it first sets the moment for all
                self._told[told.warning.kind] = told
        if new:
            self._looked_at = -LOOK_S  # the other nodes are to know at once

    def _due(self, now: float, after_s: float) -> tuple[HealthWarning, ...]:
        due = {kind for kind, told in self._told.items() if now + self._ahead_s - told.at >= after_s}
        new = due - self._returned
        self._returned |= new
        return tuple(self._told[kind].warning for kind in sorted(new))

    def _begin(self, own: NodeHello, now: float, judging: bool) -> None:
        if (own.job.world_size or 0) <= MOST_RANKS:
            shown = Shown(own, tuple(self._told.values()))
            self._thread = self._start(lambda: self._look(shown, now, judging))

    def _look(self, own: Shown, now: float, judging: bool) -> None:
        with contextlib.suppress(OSError, ValueError, HangwatchError):
            self._ahead_s = self._files.show(own) - now
            self._seen = (*self._files.of_others(own.hello.job.id), own) if judging else None

    def leave(self) -> None:
        """Removes what this node has shown. Waits LEAVE_S at most for a look under way, and as long for this."""
        if self._thread is not None:
            self._thread.join(LEAVE_S)
            if self._thread.is_alive():
                return
        last = self._start(self._files.remove)
        if last is not None:
            last.join(LEAVE_S)
