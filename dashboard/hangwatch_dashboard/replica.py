"""What other dashboard processes on the same PostgreSQL take, seen here too; so any of them can show and judge any job.

LISTEN/NOTIFY only says that there is something new; what it is stands in the tables. A lost notification costs a
second, never an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

from hangwatch_dashboard import documents
from hangwatch_dashboard.captures import Captures
from hangwatch_dashboard.hub import Hub
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.registry import Registry
from hangwatch_dashboard.store.rows import IncidentRow, RunRow
from hangwatch_dashboard.store.store import CHANNEL, Store

PAUSE_S = 0.25  # the fastest that the tables are read
LONGEST_S = 1.0  # without a notification
OVERLAP_S = 5.0  # clocks of dashboards differ, and a transaction takes its time

log = logging.getLogger(__name__)


class Replica:
    """Follows the tables. Only for PostgreSQL: an SQLite file has one process."""

    def __init__(
        self, store: Store, registry: Registry, captures: Captures, hub: Hub, clock: Callable[[], float]
    ) -> None:
        self._store, self._registry, self._captures = store, registry, captures
        self._hub, self._clock = hub, clock
        self._news = asyncio.Event()
        self._stop = threading.Event()
        self._since = clock()
        self._runs: dict[str, float] = {}
        self._incidents: dict[str, float] = {}

    async def run(self) -> None:
        """Follows until cancelled."""
        loop = asyncio.get_running_loop()
        listener = threading.Thread(target=self._listen, args=(loop,), name="hangwatch-listen", daemon=True)
        listener.start()
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LONGEST_S):  # wait_for of Python 3.11 loses a cancellation with news
                        await self._news.wait()
                self._news.clear()
                try:
                    await self.catch_up()
                except Exception:
                    log.exception("following the other dashboards failed")
                await asyncio.sleep(PAUSE_S)
        finally:
            self._stop.set()

    async def catch_up(self) -> None:
        """Takes over everything that is new in the tables."""
        since, self._since = self._since - OVERLAP_S, self._clock()
        store = self._store
        for row in await store.ask(store.nodes_since, since):
            job = await self._registry.load(row.run)
            if job is not None:
                self._registry.apply_row(job, row)
        own = self._own_judgements()
        for run in await store.ask(store.runs_changed_since, since):
            self._note_run(run, own)
        for capture in await store.ask(store.captures_since, since):
            if job := self._registry.jobs.get(capture.run):
                await self._captures.adopt(job, capture)
        own = self._own_judgements()
        for incident in await store.ask(store.incidents_since, since):
            self._note_incident(incident, own)

    def _own_judgements(self) -> dict[str, int]:
        """By job, how many judgements this process has stored, where none is on its way.

        A row that was read meanwhile may be older than what this process has judged since. Left alone, it is read
        again with the next news, within OVERLAP_S.
        """
        return {key: job.stored for key, job in self._registry.jobs.items() if not job.unstored}

    def _is_older(self, job: LiveJob, own: dict[str, int]) -> bool:
        """Whether a row may be older than what this process knows of a job."""
        return job.unstored > 0 or own.get(job.key) != job.stored

    def _note_run(self, run: RunRow, own: dict[str, int]) -> None:
        job = self._registry.jobs.get(run.key)
        if job is None or self._is_older(job, own) or self._runs.get(run.key) == run.changed_at:
            return
        self._runs[run.key] = run.changed_at
        self._registry.note_run(job, run)

    def _note_incident(self, row: IncidentRow, own: dict[str, int]) -> None:
        summary = documents.summary(row.summary)
        job: LiveJob | None = self._registry.jobs.get(row.run)
        first = row.id not in self._incidents
        if self._incidents.get(row.id) == row.changed_at or (job is not None and self._is_older(job, own)):
            return
        self._incidents[row.id] = row.changed_at
        if job is not None:
            if job.last_incident == summary:
                return  # it is our own
            job.last_incident = summary
            job.facts_revision += 1
        change = "recovered" if row.status == "recovered" else "opened" if first else "updated"
        self._hub.publish("incident", {"change": change, "incident": summary})

    def told(self, payload: str) -> None:
        """Takes a notification: "PROCESS", or "PROCESS gone KEY"."""
        process, _, rest = payload.partition(" ")
        if process == self._store.process:
            return
        what, _, key = rest.partition(" ")
        if what == "gone":
            self._registry.forget(key)
            self._hub.publish("gone", {"job": key})
        self._news.set()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Waits for notifications in a thread; connects again when the connection breaks."""
        import psycopg

        address = self._store.url.set(drivername="postgresql").render_as_string(hide_password=False)
        while not self._stop.is_set():
            try:
                with psycopg.connect(address, autocommit=True, connect_timeout=5) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    while not self._stop.is_set():
                        for notification in connection.notifies(timeout=1.0):
                            loop.call_soon_threadsafe(self.told, notification.payload)
            except (psycopg.Error, RuntimeError) as error:  # RuntimeError: the loop has ended
                log.warning("not listening to the database: %s", str(error).splitlines()[0] if str(error) else error)
                self._stop.wait(1.0)
