"""The service's heartbeat: once a second every running job is looked at, judged if need be, and shown."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from typing import Any

from hangwatch.looks import Schedule
from hangwatch_dashboard import views
from hangwatch_dashboard.aside import MANY_RANKS, aside
from hangwatch_dashboard.captures import Captures
from hangwatch_dashboard.hub import Hub, dumped
from hangwatch_dashboard.incidents import Incidents
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.notice import REST_S, reasons
from hangwatch_dashboard.registry import Registry
from hangwatch_dashboard.store.store import Store
from hangwatch_dashboard.store.text import pack

TICK_S = 0.5
SUMMARY_S = 5.0  # how often a job's summary is stored while nothing of note happens
LEASE_S = 6.0
RANKS_S = 0.9  # how often the columns of all ranks are sent
STALL_S, RESTED_S = 1.0, 10.0
FORGET_S = 600.0  # a job that is over stays in memory so long

Look = tuple[str, frozenset[str]]  # a job's state, and its silent nodes

log = logging.getLogger(__name__)


class Watch:
    """Looks at the jobs. Of several dashboard processes one judges a job: the one that holds its lease."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        captures: Captures,
        incidents: Incidents,
        hub: Hub,
        clock: Callable[[], float],
    ) -> None:
        self._store, self._registry, self._captures = store, registry, captures
        self._incidents, self._hub, self._clock = incidents, hub, clock
        self._schedules: dict[str, Schedule] = {}
        self._leases: dict[str, float] = {}
        self._shown: dict[str, tuple[int, int, Look | None]] = {}
        self._stored: dict[str, tuple[float, str]] = {}
        self._collectives: dict[str, Any] = {}
        self._ranks_at: dict[str, float] = {}
        self._stalled_at = -1e9

    async def run(self) -> None:
        """Looks at all jobs until cancelled."""
        for tick in itertools.count():
            started = time.monotonic()
            await asyncio.sleep(TICK_S)
            if time.monotonic() - started > TICK_S + STALL_S:
                self._stalled_at = time.monotonic()
            for job in list(self._registry.jobs.values()):
                if tick % 2 and job.beats >= MANY_RANKS:
                    continue  # nothing comes twice a second, and a look at 10,000 ranks costs as much as 200 batches
                try:
                    await self.look(job)
                except Exception:
                    # One job's trouble must not end the watch over the others.
                    log.exception("looking at job %s failed", job.key)

    async def look(self, job: LiveJob) -> None:
        """One look at one job."""
        now = self._clock()
        if await aside(job, job.note, now):
            job.facts_revision += 1
        if (not job.over or job.judgement is not None) and await self._is_judge(job, now):
            await (self._incidents.end(job, now) if job.over else self._judge(job, now))
        await self._show(job, now)
        await self._keep(job, now)
        if job.over and now - job.last_seen_at > FORGET_S and not self._hub.wanted(job.key):
            self._registry.forget(job.key)
            self._drop(job.key)

    def _drop(self, key: str) -> None:
        known: tuple[dict[str, Any], ...] = (self._schedules, self._leases, self._shown, self._stored)
        for each in (*known, self._collectives, self._ranks_at):
            each.pop(key, None)

    async def _judge(self, job: LiveJob, now: float) -> None:
        await self._captures.tick(job, now)
        await self._incidents.close_if_moving(job, now)
        if job.on_one_node:
            if job.judgement is not None and not job.incident and not await aside(job, reasons, job.as_now(), now):
                await self._incidents.clear(job)
            return  # its watchdog sees all of it, and judges by itself
        if not any(node.can_answer(now) for node in job.all_nodes):
            return  # no node is left to be asked
        # A dashboard that was stopped, or too busy to read, must not call nodes silent.
        rested = time.monotonic() - self._stalled_at > RESTED_S
        found = await aside(job, reasons, job.as_now(), now)
        found = [reason for reason in found if rested or reason.kind != "silent"]
        schedule = self._schedules.setdefault(job.key, Schedule())
        if job.capture is None and not job.settled and (due := schedule.due(found, now)) is not None:
            await self._captures.ask(job, due.text or due.kind, now)
            schedule.looked(found, now, REST_S)
        if not found:
            await self._incidents.clear(job)

    async def _is_judge(self, job: LiveJob, now: float) -> bool:
        if not self._store.is_postgresql:
            return True
        if self._leases.get(job.key, 0.0) - now < LEASE_S / 2:
            mine = await asyncio.wrap_future(self._store.take_judge(job.key, now, LEASE_S))
            self._leases[job.key] = now + LEASE_S if mine else 0.0
        return self._leases[job.key] > now

    async def _show(self, job: LiveJob, now: float) -> None:
        look = (job.state(now), frozenset(node.name for node in job.all_nodes if node.is_silent(now)))
        revision, facts, shown = self._shown.get(job.key, (-1, -1, None))
        changed = facts != job.facts_revision or look != shown
        due = job.revision != revision and now - self._ranks_at.get(job.key, 0.0) >= RANKS_S
        if changed or due:
            self._shown[job.key] = (job.revision, job.facts_revision, look)
            self._ranks_at[job.key] = now
            if self._hub.readers:
                events = await aside(job, self._events, job.as_now(), now, changed)
                for event, text, only in events:
                    self._hub.publish_text(event, text, only)

    def _events(self, job: LiveJob, now: float, changed: bool) -> list[tuple[str, str, str]]:
        """What the streams are to be sent: event, JSON, and the job whose readers get it ("" for all)."""
        events = [("jobs", dumped({"jobs": [views.job_summary(job, now)]}), "")]
        if not self._hub.wanted(job.key):
            return events
        events.append(("ranks", dumped(views.rank_columns(job, now)), job.key))
        if changed:
            events.append(("job", dumped(views.job_detail(job, now)), job.key))
        groups = views.group_columns(job, now)
        if self._collectives.get(job.key) != groups["groups"]:
            self._collectives[job.key] = groups["groups"]
            events.append(("collectives", dumped(groups), job.key))
        return events

    async def _keep(self, job: LiveJob, now: float) -> None:
        """Stores the job's summary: at once when its state changes, else every few seconds while batches come."""
        state = job.state(now)
        stored_at, stored_state = self._stored.get(job.key, (0.0, ""))
        quiet = now - job.last_seen_at > 2 * SUMMARY_S
        if state == stored_state and (quiet or now - stored_at < SUMMARY_S):
            return
        self._stored[job.key] = (now, state)
        seen = job.as_now()
        summary = await aside(job, lambda: pack(views.job_summary(seen, now)))
        self._store.put_run(
            job.key,
            state=state,
            last_seen_at=job.last_seen_at,
            closed_at=job.closed_at,
            summary=summary,
        )
