"""Nodes that exist only as batches, for tests of the dashboard. What they send is what the link would send."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.testclient import TestClient

from hangwatch.model import (
    GroupBeat,
    GroupMembers,
    Identity,
    Incident,
    Job,
    LoaderBeat,
    NodeBatch,
    NodeCapture,
    NodeHello,
    NodeIncident,
    Phase,
    Progress,
    RankBeat,
    Snapshot,
    StepTimes,
)
from hangwatch.wire import codec, members
from hangwatch_dashboard.service import Service


@dataclass
class FakeNode:
    """A node with some ranks. `batch()` gives the next batch; the fields say what stands in it."""

    name: str = "node-a"
    ranks: tuple[int, ...] = (0, 1)
    world_size: int = 4
    job: str = "10.0.0.1:29500"
    job_name: str = "resnet"
    boot: str = "boot-1"
    clock_offset: float = 0.0
    sequence: int = -1
    step: int = 10
    still_s: float = 0.0
    blocked: bool = False
    phase: Phase = Phase.BACKWARD
    closing: bool = False
    exit_code: int | None = None
    hello: bool = True
    changes: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def group(self) -> GroupMembers:
        everybody = range(self.world_size)
        return GroupMembers(members.identifier("0", everybody), "0", members.text(everybody), "default_pg", "gloo")

    def batch(self, now: float, **changes: Any) -> NodeBatch:
        self.sequence += 1
        values: dict[str, Any] = {
            "job": self.job,
            "node": self.name,
            "boot": self.boot,
            "sequence": self.sequence,
            "taken_at": now + self.clock_offset,
            "ranks": tuple(self.beat(rank, now) for rank in self.ranks),
            "hello": self.greeting(now) if self.hello else None,
            "closing": self.closing,
            "exit_code": self.exit_code,
        }
        self.hello = False
        return NodeBatch(**values | changes)

    def beat(self, rank: int, now: float) -> RankBeat:
        moved_at = now + self.clock_offset - self.still_s
        progress = Progress(
            epoch=0,
            batch=self.step,
            step=self.step,
            draws=self.step + 1,
            calls=5 * self.step,
            completed=5 * self.step,
            at=moved_at,
        )
        values: dict[str, Any] = {
            "rank": rank,
            "pid": 1000 + rank,
            "phase": self.phase,
            "phase_at": moved_at,
            "progress": progress,
            "still_s": self.still_s,
            "patience_s": 120.0,
            "heads": (GroupBeat(self.group.id, 5 * self.step, 5 * self.step - int(self.blocked)),),
            "loaders": (LoaderBeat(0, 251, 0, self.step + 1),),
            "times": StepTimes(self.step, 1.0, 2.0, 4.0, 0.1, 0.2),
            "blocked": self.blocked,
        }
        return RankBeat(**values | self.changes.get(rank, {}))

    def greeting(self, now: float) -> NodeHello:
        identities = tuple(
            Identity(rank, self.world_size, rank % 2, self.name, 1000 + rank, now - 60, self.job) for rank in self.ranks
        )
        job = Job(self.job, self.job_name, self.world_size, "torchrun", "train.py", now - 60)
        return NodeHello(job, self.name, now - 60, identities, (self.group,), "0.1.0")

    def capture(self, snapshot: Snapshot, request: str = "") -> NodeCapture:
        return NodeCapture(self.job, self.name, self.boot, snapshot, request)

    def incident(self, incident: Incident) -> NodeIncident:
        return NodeIncident(self.job, self.name, self.boot, incident)


def body(record: Any) -> bytes:
    """What goes over the link."""
    return codec.dumps(record).encode()


@dataclass
class Dashboard:
    """A dashboard in this process, and how tests talk to it."""

    client: TestClient
    service: Service

    def send(self, node: FakeNode, *, sent_at: float | None = None, **changes: Any) -> dict[str, Any]:
        """Sends the node's next batch and returns the answer's JSON."""
        now = self.service.clock()
        headers = JSON | {"hangwatch-sent-at": str(now + node.clock_offset if sent_at is None else sent_at)}
        answer = self.client.post("/api/v1/ingest/batch", content=body(node.batch(now, **changes)), headers=headers)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def post(self, path: str, record: Any) -> Any:
        return self.client.post(f"/api/v1/ingest/{path}", content=body(record), headers=JSON)

    def get(self, path: str) -> Any:
        """The JSON at a path below /api/v1."""
        answer = self.client.get(f"/api/v1{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def job(self) -> dict[str, Any]:
        """The only job, in detail."""
        (found,) = self.get("/jobs")["jobs"]
        detail: dict[str, Any] = self.get(f"/jobs/{found['key']}")
        return detail

    def until(self, wanted: Callable[[], Any], timeout: float = 60.0) -> Any:
        """Waits until `wanted()` is true, and returns it."""
        deadline = time.monotonic() + timeout
        while not (found := wanted()):
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.05)
        return found


JSON = {"content-type": "application/json"}
