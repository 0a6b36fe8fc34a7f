"""The service: all parts of the dashboard put together, started and stopped."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable

from hangwatch_dashboard.captures import Captures
from hangwatch_dashboard.config import Config, default_database
from hangwatch_dashboard.hub import Hub
from hangwatch_dashboard.incidents import Incidents
from hangwatch_dashboard.ingest import Ingest
from hangwatch_dashboard.judge import Diagnose
from hangwatch_dashboard.limits import Rate
from hangwatch_dashboard.metrics import Meters
from hangwatch_dashboard.notify import Messenger, Notifier, apprise_notifier
from hangwatch_dashboard.registry import RECENT_S, Registry
from hangwatch_dashboard.replica import Replica
from hangwatch_dashboard.shares import Shares
from hangwatch_dashboard.store.store import Store
from hangwatch_dashboard.watch import Watch

DAY_S = 86_400.0
LARGE_BODIES, LARGE_BODIES_EACH = 8, 4  # captures of the largest size that there is room for; of one client
READING, READING_EACH = 2, 1  # the same, in the clear, on their way through the process that reads them
STALE_CAPTURE_S = 120.0
RETENTION_S = 3600.0  # how often old things are deleted

log = logging.getLogger(__name__)


class Service:
    """One dashboard process.

    `clock` gives seconds since 1970; `diagnose` replaces hangwatch's own diagnosis, `notifier` apprise. Raises
    StoreError for a database that cannot be used, ConfigError for addresses that cannot be notified.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Callable[[], float] = time.time,
        diagnose: Diagnose | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self.config, self.clock = config, clock
        if notifier is None and config.notify:
            notifier = apprise_notifier(config.notify)
        self.store = Store(config.database or default_database(), process=secrets.token_hex(6))
        self.meters = Meters("postgresql" if self.store.is_postgresql else "sqlite")
        self.hub = Hub(config.limits.streams)
        self.registry = Registry(self.store, config.limits, self.meters)
        self.captures = Captures(self.store, self.hub, clock, diagnose)
        self.incidents = Incidents(self.store, self.hub, clock, self.meters)
        self.captures.judged = self.incidents.judged
        self.ingest = Ingest(
            self.store, self.registry, self.captures, self.incidents, config.limits, self.meters, clock
        )
        self.watch = Watch(self.store, self.registry, self.captures, self.incidents, self.hub, clock)
        self.replica = Replica(self.store, self.registry, self.captures, self.hub, clock)
        self.messenger = Messenger(self.store, notifier, config.url, clock, self.meters) if notifier else None
        # Large bodies wait for each other: a hundred at once would be gigabytes.
        largest = config.limits.capture_bytes
        self.large_bodies = Shares(LARGE_BODIES * largest, LARGE_BODIES_EACH * largest)
        # A small body may be large in the clear: one client's must not keep the others' from the process that reads.
        self.reading = Shares(READING * largest, READING_EACH * largest)
        self.capture_rate = Rate(config.limits.captures_per_minute / 60, burst=5)
        self.sign_in_rate = Rate(0.5, burst=10)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Loads what was alive, and begins to watch."""
        now = self.clock()
        await asyncio.wrap_future(self.store.fail_captures(now - STALE_CAPTURE_S, now))
        await asyncio.wrap_future(self.store.silence_runs(now - RECENT_S))
        await self.registry.load_recent(now)
        work = [self.watch.run(), self._forget()]
        if self.store.is_postgresql:
            work.append(self.replica.run())
        if self.messenger is not None:
            work.append(self.messenger.run())
        self._tasks = [asyncio.create_task(each) for each in work]

    async def stop(self) -> None:
        """Ends the streams and the watch, and writes what is queued."""
        self.hub.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.captures.stop()
        await asyncio.to_thread(self.store.close)

    async def _forget(self) -> None:
        while True:
            now = self.clock()
            kept = now - self.config.keep_days * DAY_S
            try:
                incidents = now - self.config.keep_incidents_days * DAY_S
                await asyncio.wrap_future(self.store.forget(kept, incidents, now - DAY_S))
                await asyncio.wrap_future(self.store.silence_runs(now - RECENT_S))
            except Exception:
                log.exception("deleting what is old failed")
            await asyncio.sleep(RETENTION_S)
