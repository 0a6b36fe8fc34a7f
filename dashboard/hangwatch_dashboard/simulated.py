"""Simulated nodes: what a watchdog's link would send of ranks that train, and then of ranks that hang."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property
from typing import TypeVar

from hangwatch.model import (
    Collective,
    Collectives,
    Frame,
    GroupBeat,
    GroupHead,
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
    RankEvidence,
    Reading,
    Snapshot,
    StepEntry,
    StepTimes,
    ThreadStack,
)
from hangwatch.wire import codec, members
from hangwatch.wire.compact import compacted

# Places in a form, found nowhere else in it.
FORM_SEQUENCE, FORM_STEP, FORM_NOW = 7000000000001, 800000003, 9000000000.25
FORM_HUNG_AT, FORM_STILL, FORM_REQUEST = 9000000007.25, 77777.125, "the-request"
HUNG_STEP = 100_000  # where all ranks stand at the end: evidence is made before, and must fit

T = TypeVar("T")


@cache
def _default_group(world_size: int) -> GroupMembers:
    every_rank = range(world_size)
    return GroupMembers(members.identifier("0", every_rank), "0", members.text(every_rank), "default_pg", "nccl")


class Node:
    """One simulated node: its batches, and its part of a capture."""

    def __init__(self, number: int, ranks: int, world_size: int) -> None:
        self.name, self.sequence = f"node-{number:05d}", -1
        self.ranks = range(number * ranks, (number + 1) * ranks)
        self.world_size, self.hung_at = world_size, 0.0
        self.group = _default_group(world_size)
        self.step = 100

    def prepare(self, *, capture: bool) -> None:
        """Makes the forms, which takes longer than judging them: a real node makes only its own."""
        for form in ("_first_form", "_form", *(("_hung_form", "_evidence_form") if capture else ())):
            getattr(self, form)

    @cached_property
    def _first_form(self) -> str:
        return codec.dumps(self._batch(FORM_SEQUENCE, FORM_STEP, FORM_NOW, first=True))

    @cached_property
    def _form(self) -> str:
        return codec.dumps(self._batch(FORM_SEQUENCE, FORM_STEP, FORM_NOW))

    @cached_property
    def _hung_form(self) -> str:
        return self._as_if_hung(lambda: codec.dumps(self._batch(FORM_SEQUENCE, HUNG_STEP, FORM_NOW)))

    @cached_property
    def _evidence_form(self) -> bytes:
        return self._as_if_hung(lambda: gzip.compress(codec.dumps(self._capture(FORM_REQUEST, FORM_NOW)).encode(), 1))

    def _as_if_hung(self, make: Callable[[], T]) -> T:
        before = self.step, self.hung_at
        self.step, self.hung_at = HUNG_STEP, FORM_HUNG_AT
        try:
            return make()
        finally:
            self.step, self.hung_at = before

    def hang(self, moment: float) -> None:
        """No rank of this node moves any more."""
        self.hung_at, self.step = moment, HUNG_STEP

    def batch(self, now: float) -> bytes:
        """The next batch, filled into a form: both sides of the measurement share the machine."""
        self.sequence += 1
        if not self.hung_at:
            self.step += 2
        form = self._hung_form if self.hung_at else self._form if self.sequence else self._first_form
        text = form.replace(str(FORM_SEQUENCE), str(self.sequence)).replace(str(FORM_NOW), f"{now:.6f}")
        if self.hung_at:
            text = text.replace(str(FORM_HUNG_AT), f"{self.hung_at:.6f}")
            text = text.replace(str(FORM_STILL), f"{now - self.hung_at:.6f}")
        for factor in (10, 1):
            text = text.replace(str(factor * FORM_STEP), str(factor * self.step))
        return gzip.compress(text.encode(), 1)

    def _batch(self, sequence: int, step: int, now: float, *, first: bool = False) -> NodeBatch:
        return NodeBatch(
            job="loadgen",
            node=self.name,
            boot="simulated",
            sequence=sequence,
            taken_at=now,
            ranks=tuple(self._beat(rank, step, now) for rank in self.ranks),
            hello=self._hello(now) if first else None,
        )

    def _progress(self, step: int, now: float) -> Progress:
        at = self.hung_at or now
        return Progress(0, step, step, step, step, 0, step, 10 * step, 10 * step - bool(self.hung_at), at)

    def _beat(self, rank: int, step: int, now: float) -> RankBeat:
        hung = bool(self.hung_at)
        heads = (GroupBeat(self.group.id, 10 * step, 10 * step - hung),)
        loaders = (LoaderBeat(0, 100_000, 0, step, num_workers=4),)
        times = StepTimes(step, 50.0, 100.0, 250.0, 0.5, 0.6)
        return RankBeat(
            rank=rank,
            pid=1000 + rank,
            phase=Phase.BACKWARD,
            phase_at=now,
            progress=self._progress(step, now),
            ticker_at=now,
            still_s=FORM_STILL if hung else random.random() / 2,
            patience_s=120.0,
            heads=heads,
            loaders=loaders,
            times=times,
            process_state="S",
            blocked=hung,
            waiting_for=f"collective {10 * step} of group 0" if hung else "",
        )

    def _identity(self, rank: int) -> Identity:
        return Identity(rank, self.world_size, rank % 8, self.name, 1000 + rank, 1e9, "loadgen", "train.py", "torchrun")

    def _hello(self, now: float) -> NodeHello:
        job = Job("loadgen", "loadgen (simulated)", self.world_size, "torchrun", "train.py", now)
        return NodeHello(job, self.name, now, tuple(map(self._identity, self.ranks)), (self.group,), "simulated")

    def capture(self, request: str, now: float) -> bytes:
        """Its part of a capture, compressed."""
        text = gzip.decompress(self._evidence_form).decode()
        text = text.replace(FORM_REQUEST, request).replace(str(FORM_HUNG_AT), f"{self.hung_at:.6f}")
        return gzip.compress(text.replace(str(FORM_NOW), f"{now:.6f}").encode(), 1)

    def _capture(self, request: str, now: float) -> NodeCapture:
        """Evidence as large as a real node's: four threads a rank, twice, and the last calls with their call sites."""
        ranks = tuple(self._evidence(rank, now) for rank in self.ranks)
        facts = NodeFacts(self.name, tuple(self.ranks))
        snapshot = Snapshot(
            Job("loadgen", "", self.world_size), now, ranks, nodes=(facts,), last_progress_at=self.hung_at
        )
        small, groups = compacted(snapshot)  # as the link does
        return NodeCapture("loadgen", self.name, "simulated", small, request, groups)

    def _evidence(self, rank: int, now: float) -> RankEvidence:
        wait = Frame("/opt/venv/torch/autograd/graph.py", 824, "_engine_run_backward")
        user = tuple(Frame(f"/home/mia/vision/model_{depth}.py", 10 * depth, f"forward_{depth}") for depth in range(18))
        stacks = tuple(
            ThreadStack(
                rank * 10 + number,
                f"Thread-{number}",
                (wait, *user) if number == 0 else user,
                False,
                False,
                number == 0,
            )
            for number in range(4)
        )
        head = GroupHead("0", tuple(range(self.world_size)) if self.world_size <= 64 else (), "default_pg", "nccl")
        head = replace(
            head, members=members.parse(self.group.members), issued=10 * self.step, completed=10 * self.step - 1
        )
        calls = tuple(
            Collective("0", 10 * self.step - back, "all_reduce", ((1000, 10),), ("float32",), back > 0, frames=user[:3])
            for back in range(31, -1, -1)
        )
        steps = tuple(
            StepEntry(step, 0, step, 0, self.hung_at, {"0": 10 * step}) for step in range(self.step - 60, self.step + 1)
        )
        reading = Reading(
            self._identity(rank),
            now,
            Phase.BACKWARD,
            self.hung_at,
            self._progress(self.step, now),
            now,
            heads=(head,),
            steps=steps,
        )
        return RankEvidence(
            rank,
            self.name,
            1000 + rank,
            reading,
            stacks=stacks,
            earlier_stacks=stacks,
            collectives=Collectives((head,), calls, source="flight-recorder"),
            still_s=3.0,
            patience_s=120.0,
        )
