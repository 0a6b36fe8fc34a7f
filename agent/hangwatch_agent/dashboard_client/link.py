"""The watchdog's link to a dashboard. Whatever becomes of it, the watchdog does not notice.

The watchdog's calls only put things into a queue. A thread writes them to the spool, sends them in order over one
connection, and remembers what the dashboard asks for. A dashboard that is down, slow or wrong costs a backoff here,
and nothing there; what the spool cannot hold is dropped, counted and shown.
"""

from __future__ import annotations

import gzip
import json
import math
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hangwatch.model import (
    Divergence,
    HealthWarning,
    Incident,
    Job,
    NodeBatch,
    NodeCapture,
    NodeCommand,
    NodeFacts,
    NodeHello,
    NodeIncident,
    Snapshot,
)
from hangwatch.settings import Settings
from hangwatch.version import __version__
from hangwatch.wire import codec
from hangwatch.wire.compact import compacted
from hangwatch_agent.dashboard_client import messages
from hangwatch_agent.dashboard_client.connection import Connection
from hangwatch_agent.dashboard_client.sender import Say, Sender
from hangwatch_agent.dashboard_client.spool import Spool
from hangwatch_agent.roster.hello import hello
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.shared import steady_clock
from hangwatch_agent.shared.job_identity import LOCAL, shared_identity

QUEUE = 64  # things that may wait for a hung disk
FACTS_EVERY = 10  # batches
WANTED = 16  # requests that may wait for the watchdog
UNNAMED_S = 15.0  # for the ranks to come and say what job they are


class Link:
    """One node's connection to its dashboard. None of the methods blocks (`close` waits `timeout` at most) or raises.

    Args:
        settings: `dashboard` is the address, `token` the ingest token.
        spool: the folder for what is not sent yet, common to all jobs of this user on this node.
        job: the job as the watchdog knows it.
        say: takes a line for the terminal when the dashboard cannot be reached, and when it can be again.

    Raises:
        AddressError: the address is none.
    """

    def __init__(
        self,
        settings: Settings,
        spool: Path,
        job: Job,
        *,
        say: Say = lambda line: None,
        clock: Callable[[], float] = steady_clock.time,
        node: str = "",
    ) -> None:
        self.node = node or socket.gethostname()
        self.boot = secrets.token_hex(8)
        self._settings, self._job, self._say, self._clock = settings, job, say, clock
        self._connection = Connection(settings.dashboard, settings.token, clock=clock)
        self.address = self._connection.address
        self._spool = Spool(spool, self.boot)
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(QUEUE)
        self._wanted: dict[str, None] = {}
        self._lock = threading.Lock()
        self._hello: NodeHello | None = None
        self._send_hello = True
        self._sequence = -1
        self._dropped = 0
        self._started_at = clock()
        self._news: tuple[NodeFacts | None, tuple[HealthWarning, ...], tuple[Divergence, ...]] = (None, (), ())
        self._complained = False
        self._last: Sequence[RankState] = ()
        self._goodbye: Callable[[], None] | None = None
        self._outbox = Sender(
            self._connection,
            self._spool,
            say=say,
            clock=clock,
            complete=self._complete,
            introduce=self._introduce,
            obey=self._obey,
        )
        self._thread = threading.Thread(target=self._run, name="hangwatch-link", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ the watchdog's side

    def offer(self, rank_states: Sequence[RankState], now: float) -> None:
        """Takes the node's ranks as they are now; one call a second."""
        self._put(lambda: self._keep_batch(rank_states, now))

    def news(
        self, facts: NodeFacts | None, warnings: Sequence[HealthWarning] = (), divergences: Sequence[Divergence] = ()
    ) -> None:
        """Takes what goes along with the batches from now on: the node's GPUs and memory, warnings, divergences."""
        known = self._news[0]
        if facts is not None and known is not None:
            facts = replace(facts, links=known.links)  # no capture looks at them
        self._news = (facts or known, tuple(warnings), tuple(divergences))

    def of_node(self, facts: NodeFacts) -> None:
        """Takes the node's GPUs and links as they are now, beside what has been captured of its memory."""
        known, warnings, divergences = self._news
        facts = replace(known, gpus=facts.gpus, links=facts.links) if known is not None else facts
        self._news = (facts, warnings, divergences)

    def incident(self, incident: Incident) -> None:
        """Takes an incident, new or changed."""
        # The tree is made anew from the stacks over there, and nests deeper than a strict reader allows.
        flat = replace(incident, stack_tree=())
        self._put(lambda: self._keep("incident", NodeIncident(*self._sender_name, flat), durable=True))

    def capture(self, snapshot: Snapshot, request: str = "") -> None:
        """Takes evidence: the answer to a request of the dashboard, or "" for a capture of one's own."""
        self._put(lambda: self._keep_capture(snapshot, request))

    def captures_wanted(self) -> list[str]:
        """Requests for evidence that have come since the last call."""
        with self._lock:
            wanted, self._wanted = list(self._wanted), {}
        return wanted

    def close(self, exit_code: int | None = None, timeout: float = 3.0) -> None:
        """Says goodbye, and gives what is unsent `timeout` seconds. What is left stays in the spool."""
        self._goodbye = lambda: self._keep_goodbye(exit_code)  # beside the queue, which may be full
        with suppress(queue.Full):
            self._queue.put_nowait(None)  # wakes the thread; from a full queue it comes to its end by itself
        self._thread.join(timeout)

    @property
    def dropped(self) -> int:
        """How many batches, captures and incidents have been given up."""
        return self._dropped + self._spool.dropped + self._outbox.refused

    def _put(self, work: Callable[[], None]) -> None:
        try:
            self._queue.put_nowait(work)
        except queue.Full:
            self._dropped += 1

    # ------------------------------------------------------------ the thread's side

    def _run(self) -> None:
        try:
            self._spool.open()
        except OSError as error:
            self._say(f"hangwatch: no spool in {self._spool.root} ({error.strerror}): what is unsent is kept in memory")
        while True:
            if not self._work():
                break
            self._guarded(lambda: self._outbox.send(lambda: not self._queue.empty()))
        self._guarded(lambda: self._outbox.send(at_once=True))  # one last try, whatever the backoff says
        self._connection.close()
        self._spool.close()

    def _work(self) -> bool:
        """Takes everything out of the queue, waiting for something if nothing is to be sent. False when closing."""
        pause = self._outbox.resting_s if len(self._spool) else 1.0
        try:
            work = self._queue.get(timeout=min(pause, 1.0))
            while work is not None:
                self._guarded(work)
                work = self._queue.get_nowait()
        except queue.Empty:
            if self._goodbye is None:
                return True
        if self._goodbye is not None:
            self._guarded(self._goodbye)
        return False

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            # The link must outlive whatever a strange board or a full disk does to one of its items.
            self._dropped += 1
            if not self._complained:
                self._complained = True
                self._say(f"hangwatch: something could not be sent to the dashboard: {type(error).__name__}: {error}")

    @property
    def _sender_name(self) -> tuple[str, str, str]:
        return self._job.id, self.node, self.boot

    def _keep_batch(self, rank_states: Sequence[RankState], now: float, **changes: Any) -> None:
        identities = (each.reading.identity for each in rank_states)
        self._job = replace(self._job, id=shared_identity(self._job.id, identities))
        if self._job.id.startswith(LOCAL) and not rank_states and now - self._started_at < UNNAMED_S and not changes:
            return  # the ranks will know what the nodes of the job call it
        greeting = hello(self._job, self.node, self._started_at, rank_states, __version__)
        if self._hello is None or _changed(greeting, self._hello):
            self._hello, self._send_hello = greeting, True
        self._sequence += 1
        facts, warnings, divergences = self._news
        batch = NodeBatch(
            *self._sender_name,
            sequence=self._sequence,
            taken_at=now,
            ranks=messages.rank_messages(rank_states, now, self._settings),
            hello=self._hello if self._send_hello else None,
            facts=facts if self._sequence % FACTS_EVERY == 0 else None,
            warnings=warnings,
            divergences=divergences,
            dropped=self.dropped,
        )
        self._send_hello = False
        self._last = rank_states
        self._keep("batch", replace(batch, **changes))

    def _keep_goodbye(self, exit_code: int | None) -> None:
        self._keep_batch(self._last, self._clock(), closing=True, exit_code=exit_code)

    def _keep_capture(self, snapshot: Snapshot, request: str) -> None:
        small, groups = compacted(snapshot)
        self._keep("capture", NodeCapture(*self._sender_name, small, request, groups))

    def _keep(self, kind: str, record: Any, *, durable: bool = False) -> None:
        self._spool.put(kind, packed(codec.encode(record)), durable=durable)

    def _complete(self, body: bytes) -> bytes:
        """A waiting batch with the hello; one of an earlier watchdog goes as it is."""
        batch = json.loads(gzip.decompress(body))
        if batch.get("boot") == self.boot:
            batch["hello"] = codec.encode(self._hello)
        return packed(batch)

    def _introduce(self) -> bytes | None:
        """A batch without ranks, for a dashboard that must know this node before it takes what waits."""
        if self._hello is None:
            return None
        self._sequence += 1
        return packed(codec.encode(NodeBatch(*self._sender_name, self._sequence, self._clock(), hello=self._hello)))

    def _obey(self, command: NodeCommand) -> None:
        if command.kind == "capture" and len(self._wanted) < WANTED:
            with self._lock:
                self._wanted[command.request] = None
        elif command.kind == "hello":
            self._send_hello = True


def packed(document: Any) -> bytes:
    """JSON, compressed, as strict readers want it: "?" for lone surrogates, null for what is no number."""
    try:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(document), ensure_ascii=False, separators=(",", ":"))
    return gzip.compress(text.encode("utf-8", "replace"), 3, mtime=0)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _changed(new: NodeHello, known: NodeHello) -> bool:
    return replace(new, started_at=0.0) != replace(known, started_at=0.0)
