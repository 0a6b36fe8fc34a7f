"""Captures of all nodes of a job: asked with the answers to their batches, collected, judged when all are there."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Set
from dataclasses import replace
from functools import cache

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError
from starlette.concurrency import run_in_threadpool

from hangwatch.model import NodeCapture, NodeCommand
from hangwatch.report.incident import new_id
from hangwatch.wire import codec
from hangwatch.wire.compact import compacted
from hangwatch_dashboard import judge, merge
from hangwatch_dashboard.capture_reader import MANY_NODES, CaptureReader, Envelope
from hangwatch_dashboard.hub import Hub
from hangwatch_dashboard.live import LiveCapture, LiveJob
from hangwatch_dashboard.store.rows import CaptureRow, PartRow
from hangwatch_dashboard.store.store import Store
from hangwatch_dashboard.store.text import clean
from hangwatch_dashboard.views import capture_view

DEADLINE_S = 8.0  # for the nodes to answer
LONGEST_S, COMING_S = 11.0, 1.0  # the same as long as the last answer is no older than that
SHOW_S = 0.25  # between two events of one capture: a thousand nodes answer in a second or two

log = logging.getLogger(__name__)
Judged = Callable[[LiveJob, judge.Judged], Awaitable[None]]


class Captures:
    """At most one capture of a job is under way. `judged` is called with what came of each."""

    def __init__(self, store: Store, hub: Hub, clock: Callable[[], float], diagnose: judge.Diagnose | None) -> None:
        self._store, self._hub, self._clock, self._diagnose = store, hub, clock, diagnose
        self.judged: Judged | None = None
        self.reader = CaptureReader()
        self._finishing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, job: LiveJob, reason: str, now: float) -> CaptureRow:
        """Asks all nodes that can be heard for their evidence; the capture that is under way if there is one."""
        if job.capture is not None:
            return job.capture.row
        asked = tuple(sorted(node.name for node in job.nodes.values() if node.can_answer(now)))
        row = CaptureRow(new_capture_id(now), job.key, clean(reason, 300), now, now, "asked", asked)
        job.capture = LiveCapture(row, now)
        self.reader.expect(len(asked))
        self._publish(job, row)
        await asyncio.wrap_future(self._store.put_capture(row))
        return row

    async def adopt(self, job: LiveJob, row: CaptureRow) -> None:
        """Takes note of a capture that another dashboard process has asked for, or finished.

        Where two processes have asked at the same time, all of them keep to the older request.
        """
        own = job.capture
        if row.state == "asked":
            if own is not None and (own.row.asked_at, own.row.id) <= (row.asked_at, row.id):
                return
            if own is not None and own.row.id in self._finishing:
                return
            job.capture = LiveCapture(row, self._clock())
            self.reader.expect(len(row.nodes_asked))
            self._publish(job, row)
            if own is not None:
                given_up = replace(own.row, state="failed", done_at=self._clock(), changed_at=self._clock())
                await asyncio.wrap_future(self._store.put_capture(given_up))
        elif own is not None and own.row.id == row.id and row.id not in self._finishing:
            job.last_capture, job.capture = row, None
            self._publish(job, row)

    def commands(self, job: LiveJob, node: str, now: float) -> tuple[NodeCommand, ...]:
        """What a node is to be told with the answer to its batch."""
        capture = job.capture
        if capture is None or not capture.waits_for(node) or not capture.may_tell(node, now):
            return ()
        capture.told[node] = now
        return (NodeCommand("capture", capture.row.id, capture.row.reason),)

    async def take(self, job: LiveJob, part: Envelope, packed: bytes, now: float) -> None:
        """Keeps a node's part, as it came. A part that was not asked for begins a capture, unless all is known."""
        capture = job.capture
        if capture is None and not part.request and not job.settled:
            await self.ask(job, f"{part.node} took evidence by itself", now)
            capture = job.capture
        if capture is None or part.request not in ("", capture.row.id) or part.node not in capture.asked:
            return  # too late: that capture, or the whole case, is judged; or this node was not asked
        offset = job.nodes[part.node].clock.offset if part.node in job.nodes else 0.0
        row = PartRow(capture.row.id, part.node, now, offset, packed)
        await self._store.put_part_soon(row)
        capture.answered.add(part.node)
        capture.heard_at = self._clock()
        if capture.complete or now - capture.shown_at >= SHOW_S:
            capture.shown_at = now
            self._publish(job, capture.row)

    async def stop(self) -> None:
        """Lets go of what is being judged; it is judged again by the process that goes on with the job."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.reader.stop()

    async def tick(self, job: LiveJob, now: float) -> None:
        """Finishes the capture under way if every node that can has answered, or time is up."""
        capture = job.capture
        if capture is None or capture.row.id in self._finishing:
            return
        if self._store.is_postgresql:  # parts may have come to other processes
            capture.answered |= set(await self._store.ask(self._store.part_nodes, capture.row.id))
        awaited = [job.nodes[name] for name in capture.waiting if name in job.nodes]
        coming = now - capture.heard_at < COMING_S
        # A node sends its evidence in the place of its batches: while answers come it may be ours that are slow.
        hopeful = [node for node in awaited if node.can_answer(now) or (coming and not node.closed)]
        if not hopeful or now - capture.row.asked_at > (LONGEST_S if coming else DEADLINE_S):
            self._finishing.add(capture.row.id)
            task = asyncio.create_task(self._finish(job, capture))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _finish(self, job: LiveJob, capture: LiveCapture) -> None:
        answered = tuple(sorted(capture.answered))
        row = replace(
            capture.row, state="failed", done_at=self._clock(), changed_at=self._clock(), nodes_answered=answered
        )
        judged = None
        try:
            judged = await self._judge(job, capture)
            row = replace(row, state="done", done_at=self._clock(), changed_at=self._clock(), document=judged.document)
        except Exception:
            # Evidence is hostile, and the diagnosis is large: whatever it raises must not stop the service.
            log.exception("capture %s could not be judged", row.id)
        try:
            await asyncio.wrap_future(self._store.put_capture(row))
        except Exception:
            log.exception("capture %s could not be kept", row.id)
        row = replace(row, document=None)
        if judged is not None and self.judged is not None:
            try:
                await self.judged(job, judged)
            except Exception:
                log.exception("the judgement of capture %s could not be kept", row.id)
        # Only now may another be asked for: what this one has taught is known.
        job.last_capture, job.capture = row, None
        self._finishing.discard(row.id)
        self._publish(job, row)

    async def _judge(self, job: LiveJob, capture: LiveCapture) -> judge.Judged:
        parts = await self._store.ask(self._store.parts_of, capture.row.id)
        answered = {part.node for part in parts}
        rest = await run_in_threadpool(_rest, job.as_now(), answered, self._clock(), frozenset(capture.told))
        case = judge.Case(new_id(), self._clock(), tuple(parts), rest)
        started = time.monotonic()
        # Not by bytes alone: ranks that stand in one place compress to 5 kB a node, and judging 250 such nodes in a
        # thread took the interpreter from the event loop for 4 to 6 s.
        many = len(capture.asked) >= MANY_NODES
        if self._diagnose is None and (many or case.size > judge.LARGE_BYTES):
            judged = await run_in_threadpool(judge.judge_apart, case)
        else:
            judged = await run_in_threadpool(judge.judge, case, self._diagnose)
        log.info("capture %s of %d nodes judged in %.2f s", capture.row.id, len(parts), time.monotonic() - started)
        return judged

    def _publish(self, job: LiveJob, row: CaptureRow) -> None:
        if self._hub.wanted(job.key):
            self._hub.publish("capture", capture_view(row, job.capture), job.key)


def _rest(job: LiveJob, answered: Set[str], now: float, told: Set[str] = frozenset()) -> str:
    """What is known of the job besides the parts, as compact as a part: each rank's groups list all their members."""
    small, groups = compacted(merge.remainder(job, answered, now, told))
    rest = NodeCapture(job.id, "", "", small, groups=groups)
    try:
        return _writer().dump_json(rest).decode()
    except PydanticSerializationError:  # half a character, as in `judge.packed`
        return codec.dumps(rest)


@cache
def _writer() -> TypeAdapter[NodeCapture]:
    """Ten times as fast as `codec`: of 300 nodes that did not answer it holds up batches for 0.1 s, not for 0.6 s."""
    return TypeAdapter(NodeCapture)


def new_capture_id(now: float) -> str:
    """A name for a capture: "c-20261120T193000Z-77aa12"."""
    return f"c-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}-{secrets.token_hex(3)}"
