"""Which run of which job a batch belongs to, and the runs that are in memory."""

from __future__ import annotations

import asyncio
import hashlib
import re

from hangwatch.model import NodeBatch, NodeFacts, NodeHello
from hangwatch_dashboard import documents
from hangwatch_dashboard.bodies import BodyError, Reader
from hangwatch_dashboard.clocks import ClockEstimate
from hangwatch_dashboard.config import Limits
from hangwatch_dashboard.live import LOST_AFTER_S, LiveJob
from hangwatch_dashboard.live_node import LiveNode
from hangwatch_dashboard.metrics import Meters
from hangwatch_dashboard.store.rows import LastRun, NodeRow, RunRow
from hangwatch_dashboard.store.store import Store
from hangwatch_dashboard.store.text import clean, unzipped

JOINABLE_S = 4 * LOST_AFTER_S  # a run of which nothing was heard for so long is not joined
RECENT_S = 600.0  # runs seen within are loaded when the dashboard starts
NEW_RUNS_PER_MINUTE = 60  # what a stolen ingest token can make

Boot = tuple[str, str, str]  # job, node, boot


class UnknownBootError(Exception):
    """A batch without a hello from a node that we have never heard of: it is asked for one."""


class Registry:
    """The live jobs by key. A run is one life of a job: the same id started again is another run."""

    def __init__(self, store: Store, limits: Limits, meters: Meters) -> None:
        self.jobs: dict[str, LiveJob] = {}
        self._store, self._limits, self._meters = store, limits, meters
        self._boots: dict[Boot, str] = {}
        self._joining = asyncio.Lock()
        self._reader = Reader(NodeBatch)
        self._made: list[float] = []

    async def job_of(self, batch: NodeBatch, now: float) -> LiveJob:
        """The run that a batch belongs to, made if need be. Raises UnknownBootError and BodyError."""
        boot = (batch.job, batch.node, batch.boot)
        if key := self._boots.get(boot):
            return self.jobs[key]
        async with self._joining:
            if key := self._boots.get(boot):
                return self.jobs[key]
            return await self._join(batch, now)

    async def _join(self, batch: NodeBatch, now: float) -> LiveJob:
        if batch.hello is not None and (job := self._joinable(batch, now)) is not None:
            return self._joined(batch, job)
        known = await self._store.ask(self._store.run_of_boot, batch.node, batch.boot)
        if known is not None and (job := await self.load(known)) is not None and job.id == batch.job:
            self._boots[batch.job, batch.node, batch.boot] = known
            return job
        hello = batch.hello
        if hello is None:
            raise UnknownBootError
        return self._joined(batch, await self._choose(batch, hello, now))

    def _joined(self, batch: NodeBatch, job: LiveJob) -> LiveJob:
        if len(job.nodes) >= self._limits.nodes_per_job:
            raise BodyError(422, f"node: more than {self._limits.nodes_per_job} in one job")
        self._boots[batch.job, batch.node, batch.boot] = job.key
        return job

    def _joinable(self, batch: NodeBatch, now: float) -> LiveJob | None:
        """The run in memory that a node joins without question: it goes on, and has not had this node."""
        runs = [job for job in self.jobs.values() if job.id == batch.job]
        last = max(runs, key=lambda job: job.started_at, default=None)
        if last is None or last.over or batch.node in last.nodes or now - last.last_seen_at > JOINABLE_S:
            return None
        return last

    async def _choose(self, batch: NodeBatch, hello: NodeHello, now: float) -> LiveJob:
        """The run in the store that a node joins, or a new one."""
        self._check_rate(now)
        made: set[str] = set()

        def choose(last: LastRun | None) -> RunRow | None:
            if last is not None and self._continues(last, hello, now):
                return None
            run = new_run(batch, hello, now)
            made.add(run.key)
            return run

        row = await asyncio.wrap_future(self._store.choose_run(choose, batch.job, batch.node))
        if row.key in made:
            self._meters.job_opened()
        job = await self.load(row.key)
        assert job is not None
        return job

    def _continues(self, last: LastRun, hello: NodeHello, now: float) -> bool:
        """Whether a new boot belongs to the last run of its job: another node of it, or the same ranks watched anew."""
        if last.nodes and not last.alive:
            return False
        if last.node is None:
            return now - last.row.last_seen_at < JOINABLE_S
        before = {beat.pid for beat in self._batch(last.node.batch).ranks}
        return bool(before) and before == {who.pid for who in hello.ranks}

    def _check_rate(self, now: float) -> None:
        self._made = [at for at in self._made if now - at < 60]
        if len(self._made) >= NEW_RUNS_PER_MINUTE:
            raise BodyError(429, "too many new jobs within a minute")
        self._made.append(now)

    def live_node(self, batch: NodeBatch, before: LiveNode | None, received_at: float) -> LiveNode:
        """The node's state with a new batch. Raises UnknownBootError where a hello is missing."""
        fresh = before is None or before.boot != batch.boot
        hello = batch.hello or (before.hello if before is not None and not fresh else None)
        if hello is None:
            raise UnknownBootError
        return LiveNode(
            name=batch.node,
            boot=batch.boot,
            batch=batch,
            hello=hello,
            received_at=received_at,
            clock=before.clock if before is not None and not fresh else ClockEstimate(),
            facts=batch.facts or (before.facts if before else None),
            stored=-1 if fresh or before is None else before.stored,
        )

    async def load(self, key: str) -> LiveJob | None:
        """A run from memory, or from the store; None if there is none."""
        if key in self.jobs:
            return self.jobs[key]
        row = await self._store.ask(self._store.run, key)
        if row is None:
            return None
        rows = await self._store.ask(self._store.nodes_of, key)
        if key not in self.jobs:  # another request may have loaded it meanwhile
            self._make_room()
            self.jobs[key] = self.from_rows(row, rows)
        return self.jobs[key]

    async def load_recent(self, now: float) -> None:
        """Loads the runs that were alive shortly before the dashboard started."""
        for row in await self._store.ask(self._store.runs_seen_since, now - RECENT_S, self._limits.jobs // 2):
            job = await self.load(row.key)
            if job is not None and row.state != "silent":
                job.listen_from(now)

    def from_rows(self, row: RunRow, rows: list[NodeRow]) -> LiveJob:
        """A live job as the store has it."""
        job = LiveJob(row.key, row.id, row.started_at)
        self.note_run(job, row)
        for node in rows:
            self.apply_row(job, node)
        if row.summary is not None:
            job.last_incident = documents.job_summary(row.summary).get("incident")
        return job

    def note_run(self, job: LiveJob, row: RunRow) -> None:
        """Takes over what was judged of a run, by this or another process."""
        job.judgement = documents.judgement(row.judgement) if row.judgement else None
        job.judged_at, job.incident = row.judged_at, row.open_incident or ""
        job.facts_revision += 1

    def apply_row(self, job: LiveJob, row: NodeRow) -> None:
        """Takes over a node from the store, unless a newer batch of it is known."""
        before = job.nodes.get(row.node)
        if before is not None and before.boot == row.boot and before.batch.sequence >= row.sequence:
            return
        batch = self._batch(row.batch)
        hello = self._batch(row.hello).hello if row.hello else None
        if hello is None:
            return
        facts: NodeFacts | None = self._batch(row.facts).facts if row.facts else None
        clock = ClockEstimate(row.clock_offset)
        job.apply(LiveNode(row.node, row.boot, batch, hello, row.received_at, clock, facts, row.sequence))
        self._boots[job.id, row.node, row.boot] = job.key

    def _batch(self, packed: bytes) -> NodeBatch:
        return self._reader.read(unzipped(packed))

    def forget(self, key: str) -> None:
        """Takes a run out of memory."""
        self.jobs.pop(key, None)
        self._boots = {boot: run for boot, run in self._boots.items() if run != key}

    def _make_room(self) -> None:
        """Forgets the run that has been quiet for longest. All of it can be had again from the store."""
        while len(self.jobs) >= self._limits.jobs:
            self.forget(min(self.jobs.values(), key=lambda job: job.last_seen_at).key)


def new_run(batch: NodeBatch, hello: NodeHello, now: float) -> RunRow:
    """A run that begins now, with a key that stands in addresses: "resnet-3fa9c1d2"."""
    name = clean(hello.job.name or batch.job, 200)
    digest = hashlib.sha256(f"{batch.job}\0{batch.node}\0{batch.boot}\0{now}".encode()).hexdigest()[:8]
    command = clean(hello.job.command, 2000)
    return RunRow(f"{slug(name)}-{digest}", batch.job, name, now, now, "starting", changed_at=now, command=command)


def slug(name: str) -> str:
    """A name in letters that need no quoting anywhere."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "job"
