"""The watchdog's side of the dashboard: what it sends about the ranks, between two looks and during one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from hangwatch.model import Divergence, HealthWarning, Incident, NodeFacts, Snapshot
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.shared import steady_clock

OFFER_EVERY = 0.95  # seconds between two messages about the ranks


class Link(Protocol):
    """What the watchdog sends to a dashboard, and is asked for (see `hangwatch_agent.dashboard_client.link`)."""

    def offer(self, rank_states: Sequence[RankState], now: float) -> None: ...
    def incident(self, incident: Incident) -> None: ...
    def capture(self, snapshot: Snapshot, request: str = "") -> None: ...
    def captures_wanted(self) -> list[str]: ...
    def news(
        self, facts: NodeFacts | None, warnings: Sequence[HealthWarning] = (), divergences: Sequence[Divergence] = ()
    ) -> None: ...
    def of_node(self, facts: NodeFacts) -> None: ...
    def close(self, exit_code: int | None = None) -> None: ...


class DashboardExchange:
    """One watchdog's messages to a dashboard, and its requests. `clock` gives seconds since 1970."""

    def __init__(self, link: Link, clock: Callable[[], float] = steady_clock.time) -> None:
        self.link = link
        self._clock = clock
        self._offered_at = 0.0

    def offer(self, rank_states: Sequence[RankState], now: float) -> None:
        """Send the state of the ranks, unless it was sent a moment ago."""
        if now - self._offered_at >= OFFER_EVERY:
            self._offered_at = now
            self.link.offer(rank_states, now)

    @contextlib.contextmanager
    def still_heard(self, reread: Callable[[float], Sequence[RankState]]) -> Iterator[None]:
        """Keep sending the state of the ranks while evidence is taken, which takes long on a busy machine.

        The dashboard takes a node that sends nothing for some seconds for silent, and proves nothing without it.
        `reread` reads the boards anew, in a thread of its own until this ends.
        """
        done = threading.Event()
        beat = threading.Thread(target=self._beat, args=(reread, done), name="hangwatch-beat", daemon=True)
        beat.start()
        try:
            yield
        finally:
            done.set()
            beat.join()  # the roster has one user at a time

    def _beat(self, reread: Callable[[float], Sequence[RankState]], done: threading.Event) -> None:
        while not done.wait(max(0.0, self._offered_at + OFFER_EVERY - self._clock())):
            self._offered_at = self._clock()
            self.link.offer(reread(self._offered_at), self._offered_at)
