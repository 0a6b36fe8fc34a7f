"""What nodes send: checked, kept, and only then answered."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from hangwatch.model import NodeBatch, NodeCommand, NodeIncident, NodeReply
from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.capture_reader import Envelope
from hangwatch_dashboard.captures import Captures
from hangwatch_dashboard.checks import check_batch, check_sender
from hangwatch_dashboard.config import Limits
from hangwatch_dashboard.incidents import Incidents
from hangwatch_dashboard.limits import Rate
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.live_node import LiveNode
from hangwatch_dashboard.metrics import Meters
from hangwatch_dashboard.registry import Registry, UnknownBootError
from hangwatch_dashboard.store.rows import NodeRow
from hangwatch_dashboard.store.store import Store

ID = r"[A-Za-z0-9-]{1,64}"  # it stands in addresses and in names of files
HELLO = NodeCommand("hello", reason="the dashboard does not know this node")


class Ingest:
    """Takes batches, captures and incidents. Whatever it answers is in the store by then."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        captures: Captures,
        incidents: Incidents,
        limits: Limits,
        meters: Meters,
        clock: Callable[[], float],
    ) -> None:
        self._store, self._registry, self._captures = store, registry, captures
        self._incidents, self._limits, self._meters, self._clock = incidents, limits, meters, clock
        self._rate = Rate(limits.ingest_per_node_s, burst=10 * limits.ingest_per_node_s)

    async def batch(self, batch: NodeBatch, packed: bytes, sent_at: float | None) -> NodeReply:
        """Takes a batch, and `packed`, what it was read from, compressed.

        Raises BodyError: 409 for one that is there already, 422, 429.
        """
        started = time.perf_counter()
        check_batch(batch, self._limits)
        now = self._clock()
        self._rate.check(f"{batch.job}\0{batch.node}", now)
        try:
            job = await self._registry.job_of(batch, now)
            before = job.nodes.get(batch.node)
            if before is not None and before.boot == batch.boot and batch.sequence <= before.stored:
                raise BodyError(409, f"sequence: {batch.sequence} is there already, up to {before.stored}")
            node = self._registry.live_node(batch, before, now)
        except UnknownBootError:
            self._meters.count("hello")
            return NodeReply(-1, now, (HELLO,))
        if sent_at is not None:
            node.clock.update(sent_at, now)
        row = self._row(job, node, packed, now)  # as it is now: the next batch may come while this one is stored
        if before is None or before.boot != batch.boot or before.batch.sequence < batch.sequence:
            job.apply(node)
        await self._store.put_node_soon(row)
        node.stored = max(node.stored, batch.sequence)
        self._meters.took(time.perf_counter() - started)
        self._meters.count("accepted")
        return NodeReply(batch.sequence, self._clock(), self._captures.commands(job, node.name, now))

    def _row(self, job: LiveJob, node: LiveNode, packed: bytes, now: float) -> NodeRow:
        batch = node.batch
        return NodeRow(
            run=job.key,
            node=node.name,
            boot=node.boot,
            sequence=batch.sequence,
            process=self._store.process,
            received_at=now,
            clock_offset=node.clock.offset,
            batch=packed,
            hello=packed if batch.hello is not None else None,
            facts=packed if batch.facts is not None else None,
            closed=int(batch.closing),
        )

    async def capture(self, part: Envelope, packed: bytes) -> None:
        """Takes a node's part of a capture, and `packed`, what it was read from, compressed. Raises BodyError."""
        job = await self._job_of(part)
        await self._captures.take(job, part, packed, self._clock())
        self._meters.count("accepted")

    async def incident(self, sent: NodeIncident) -> str:
        """Takes an incident that a node has judged. Returns the id under which it is kept. Raises BodyError."""
        check_sender(sent)
        if not re.fullmatch(ID, sent.incident.id):
            raise BodyError(422, "incident.id: letters, digits and dashes are allowed, 64 at most")
        job = await self._job_of(sent)
        now = self._clock()
        kept = await self._incidents.from_node(job, sent.incident, sent.node)
        if not job.on_one_node and not job.over:
            await self._captures.ask(job, f"{sent.node} reports: {sent.incident.verdict.cause}", now)
        self._meters.count("accepted")
        return kept

    async def _job_of(self, sent: Envelope | NodeIncident) -> LiveJob:
        stand_in = NodeBatch(job=sent.job, node=sent.node, boot=sent.boot, sequence=0, taken_at=0.0)
        try:
            return await self._registry.job_of(stand_in, self._clock())
        except UnknownBootError:
            raise BodyError(428, "boot: no batch of it has come yet; send one with a hello first") from None
