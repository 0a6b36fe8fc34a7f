"""Nodes that train, hang and answer captures over HTTP: for tests and pictures of the page, without a job."""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from hangwatch.model import (
    GroupBeat,
    GroupMembers,
    Identity,
    Job,
    LoaderBeat,
    NodeBatch,
    NodeCapture,
    NodeFacts,
    NodeHello,
    Phase,
    Progress,
    RankBeat,
    Snapshot,
    StepTimes,
)
from hangwatch.wire import codec, members
from tests import examples

CYCLE = (Phase.DATA, Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD, Phase.OPTIMIZER)


@dataclass
class Fleet:
    """A job of `world_size` ranks on nodes of `per_node`, whose rank `culprit` runs out of data when told to `hang()`.

    `beat()` sends a batch of every node; `live()` does so once a second in a thread of its own.
    """

    url: str
    world_size: int = 4
    per_node: int = 2
    culprit: int = 3
    job: str = "10.0.0.1:29500"
    name: str = "vision"
    command: str = examples.COMMAND
    step: int = 0
    slow: int | None = None  # a rank that lags behind
    snapshot: Snapshot | None = None  # what captures are answered with
    started_at: float = field(default_factory=time.time)
    hung_at: float | None = None
    absent: tuple[int, ...] = ()  # ranks that never came
    still: float = 0.0  # seconds that all ranks stand still in a job that is not blocked for all that is known
    closing: bool = False
    exit_code: int = 0  # that of every node when it says goodbye
    answered: set[tuple[str, str]] = field(default_factory=set)  # requests, and the nodes that have answered them
    texts: dict[int, dict[str, str]] = field(default_factory=dict)  # a rank's strings, for hostile ones

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._sequence = -1
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        everybody = range(self.world_size)
        self.group = GroupMembers(
            members.identifier("0", everybody), "0", members.text(everybody), "default_pg", "nccl"
        )
        if self.snapshot is None and self.world_size <= 64:
            self.snapshot = examples.uneven_steps_snapshot(self.world_size, self.culprit, self.per_node)

    @property
    def nodes(self) -> list[str]:
        return [examples.host_of(first, self.per_node) for first in range(0, self.world_size, self.per_node)]

    def hang(self) -> None:
        self.hung_at = time.time()

    def beat(self, *, advance: int = 1) -> None:
        """Sends one batch of every node, and answers what they are asked."""
        self._sequence += 1
        if self.hung_at is None:
            self.step += advance
        connection = self.connection()
        try:
            for index, node in enumerate(self.nodes):
                reply = self._post(connection, "batch", self._batch(index, node))
                for command in reply.get("commands", ()):
                    if command["kind"] == "capture":
                        self._answer(connection, index, node, command["request"])
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=60)

    def live(self, every_s: float = 1.0) -> None:
        """Sends batches until `stop()`."""

        def work() -> None:
            while not self._stop.wait(every_s):
                self.beat()

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._thread, self._stop = None, threading.Event()

    def finish(self) -> None:
        """Says goodbye from every node."""
        self.closing = True
        self.beat()

    def _post(self, connection: http.client.HTTPConnection, what: str, record: Any) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Hangwatch-Sent-At": str(time.time())}
        connection.request("POST", f"/api/v1/ingest/{what}", codec.dumps(record), headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        result: dict[str, Any] = json.loads(text)
        return result

    def _answer(self, connection: http.client.HTTPConnection, index: int, node: str, request: str) -> None:
        if self.snapshot is None or (request, node) in self.answered:
            return
        self.answered.add((request, node))
        now = time.time()
        shift = now - self.snapshot.taken_at
        ranks = tuple(rank for rank in self.snapshot.ranks if rank.host == node)
        if self.hung_at is None:
            ranks = tuple(replace(rank, still_s=0.1, moved=True) for rank in ranks)
        facts = tuple(facts for facts in self.snapshot.nodes if facts.host == node)
        part = replace(
            moved(self.snapshot, shift, ranks), nodes=facts, launchers=self.snapshot.launchers[index : index + 1]
        )
        self._post(connection, "capture", NodeCapture(self.job, node, self._boot, part, request))

    @property
    def _boot(self) -> str:
        return f"boot-{self.started_at:.0f}"

    def _batch(self, index: int, node: str) -> NodeBatch:
        now = time.time()
        last = min((index + 1) * self.per_node, self.world_size)
        ranks = [rank for rank in range(index * self.per_node, last) if rank not in self.absent]
        return NodeBatch(
            job=self.job,
            node=node,
            boot=self._boot,
            sequence=self._sequence,
            taken_at=now,
            ranks=tuple(self._rank(rank, now) for rank in ranks),
            hello=self._hello(node, ranks) if self._sequence == 0 else None,
            facts=self._facts(index) if self._sequence % 5 == 0 else None,
            warnings=self.snapshot.warnings if self.snapshot and self.hung_at else (),
            divergences=self.snapshot.divergences if self.snapshot and self.hung_at else (),
            closing=self.closing,
            exit_code=self.exit_code if self.closing else None,
        )

    def _facts(self, index: int) -> NodeFacts | None:
        return self.snapshot.nodes[index] if self.snapshot else None

    def _hello(self, node: str, ranks: list[int]) -> NodeHello:
        job = Job(
            self.job, self.name, self.world_size, "torchrun", self.command, self.started_at - 400, len(self.nodes)
        )
        identities = tuple(
            Identity(rank, self.world_size, rank % self.per_node, node, 4708 + rank, self.started_at - 400, self.job)
            for rank in ranks
        )
        return NodeHello(job, node, self.started_at - 400, identities, (self.group,), "0.1.0")

    def _rank(self, rank: int, now: float) -> RankBeat:
        hung, blamed = self.hung_at is not None, rank == self.culprit
        behind = (3 if rank == self.slow else 0) + (1 if hung and blamed else 0)
        step = max(self.step - behind, -1)
        still = now - self.hung_at if self.hung_at is not None else self.still or 0.1 * (rank % 3)
        phase = (Phase.BETWEEN if blamed else Phase.BACKWARD) if hung else CYCLE[(rank * 7 + self.step) % len(CYCLE)]
        issued = 2 * step + (1 if hung and blamed else 2)
        what = f"{'barrier' if blamed else 'all_reduce'} {2 * step + 1} of group 0" if hung else ""
        text = self.texts.get(rank, {})
        return RankBeat(
            rank=rank,
            pid=4708 + rank,
            phase=phase,
            phase_at=now - still,
            progress=Progress(0, step, step, step, step, 0, step + 1, issued, issued - 2, now - still),
            ticker_at=now,
            still_s=still,
            patience_s=120.0,
            waiting_for=text.get("waiting_for", what),
            heads=(GroupBeat(self.group.id, issued, issued - 2),),
            loaders=(LoaderBeat(0, 251, 0, step + 1, num_workers=2),),
            times=StepTimes(
                step + 1,
                0.16 * step * (3 if rank == self.slow else 1),
                0.6 * step,
                1.4 * step,
                1.39 + 0.02 * ((rank * 31 + step * 7) % 9) + (0.5 if rank == self.slow else 0),
                1.6,
            ),
            exception=text.get("exception", ""),
            blocked=hung,
        )


def moved(snapshot: Snapshot, shift: float, ranks: tuple[Any, ...]) -> Snapshot:
    """The snapshot with some of its ranks, as if taken `shift` seconds later."""
    document = codec.encode(replace(snapshot, ranks=ranks))
    return codec.decode(Snapshot, _shifted(document, shift))


_TIMES = {"at", "taken_at", "started_at", "seen_at", "last_progress_at", "phase_at", "ticker_at"}


def _shifted(value: Any, shift: float) -> Any:
    if isinstance(value, dict):
        return {
            key: item + shift if key in _TIMES and isinstance(item, float) and item else _shifted(item, shift)
            for key, item in value.items()
        }
    return [_shifted(item, shift) for item in value] if isinstance(value, list) else value
