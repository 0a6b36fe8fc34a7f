"""Simulated evidence against real evidence: a script of the gallery, as it ran and was recorded, and its simulation.

`skipped_backward.json` is what hangwatch recorded of `hangwatch/gallery/skipped_backward.py` on two ranks: paths and
the oldest calls cut.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hangwatch.model import Collective, Phase, RankEvidence, RankReport, ThreadStack
from hangwatch.report.incident import evidence_of
from hangwatch.stacks.frames import name_of, origin
from hangwatch.wire import codec
from hangwatch.world.acts import Collective as CollectiveCall
from hangwatch.world.acts import Draw, End, Enter, Forward, Line, LoopEnd, Mark, Optimizer, Wait
from hangwatch.world.calls import Comm
from hangwatch.world.camera import Camera
from hangwatch.world.evidence import snapshot
from hangwatch.world.machine import Machine
from hangwatch.world.places import Source

BATCHES, EPOCHS, FAULT = 60, 2, 25
# What the recorded script has and a simulation may leave out: how the machine is, and how the script was started.
LEFT_OUT = {
    "process": {
        *("parent", "started_at", "cpu_s", "threads", "resident_bytes", "descriptors", "descriptor_limit"),
        *("io_bytes", "written_bytes", "private_wait"),
    },
    "loader": {
        *("dataset_length", "sampler", "sampler_length", "shuffle"),
        *("sampler_indices_hash", "previous_indices_hash"),
    },
    "collectives": {"answer_cpu_s"},
    "evidence": {"phases", "earlier_stacks"},
}


@cache
def recorded() -> list[RankEvidence]:
    path = Path(__file__).with_name("skipped_backward.json")
    reports = [codec.decode(RankReport, each) for each in json.loads(path.read_text(encoding="utf-8"))]
    return [evidence_of(report) for report in reports]


@cache
def simulated() -> tuple[RankEvidence, ...]:
    programs = [_program(skips=False), _program(skips=True)]
    machine = Machine(programs, [Comm("0", (0, 1), "gloo")]).run()
    return snapshot(machine, Camera()).ranks


def _program(*, skips: bool) -> list[Line]:
    source = Source()
    backward = source.site("backward")
    acts: list[Any] = []
    for epoch in range(EPOCHS):
        for batch in range(BATCHES):
            acts.append(Draw(0, epoch, batch, BATCHES, source.site("loop")))
            if skips and batch == FAULT:
                acts.append(Mark(0))
                continue
            gradients = CollectiveCall("all_reduce", backward, size=396352, via="gradients", handle="grad")
            acts += [Forward(), Enter(Phase.BACKWARD), gradients, Wait("grad", backward, backward=True), Optimizer()]
        acts.append(LoopEnd(0))
    return [Line(act) for act in (*acts, CollectiveCall("barrier", source.site("final")), End())]


ranks = pytest.mark.parametrize("rank", [0, 1])


@ranks
def test_the_simulated_job_stands_where_the_real_one_stood(rank: int) -> None:
    real, ours = recorded()[rank].reading, simulated()[rank].reading
    assert real is not None
    assert ours is not None
    assert ours.phase is real.phase
    for name in ("epoch", "batch", "step", "draws", "forwards", "optimizer_steps"):
        assert getattr(ours.progress, name) == getattr(real.progress, name), name
    assert [(entry.step, entry.epoch, entry.batch, entry.loader) for entry in ours.steps[-3:]] == [
        (entry.step, entry.epoch, entry.batch, entry.loader) for entry in real.steps
    ]
    real_counts, our_counts = _per_step(real.steps), _per_step(ours.steps[-3:])
    assert our_counts == real_counts


def _per_step(steps: Any) -> list[int]:
    """Collectives issued in each step; before the first one the real DDP has made some of its own."""
    return [after.issued["0"] - before.issued["0"] for before, after in pairwise(steps)]


@ranks
def test_the_same_calls_are_recorded_in_the_same_way(rank: int) -> None:
    real, ours = recorded()[rank], simulated()[rank]
    assert ours.collectives.source == real.collectives.source
    for one, other in zip(ours.collectives.recent[-3:], real.collectives.recent, strict=True):
        assert _shape(one) == _shape(other)
    assert [_shape(call) for call in ours.collectives.open_calls] == [
        _shape(call) for call in real.collectives.open_calls
    ]
    head, theirs = ours.collectives.heads[0], real.collectives.heads[0]
    assert (head.name, head.members, head.backend) == (theirs.name, theirs.members, theirs.backend)
    assert head.issued - head.completed == theirs.issued - theirs.completed


def _shape(call: Collective) -> tuple[Any, ...]:
    names = tuple(name_of(frame.function) for frame in call.frames if origin(frame.file) == "torch")
    known = (call.step is not None, call.peer is not None, call.at is not None)
    return call.op, call.sizes, call.dtypes, call.retired, call.thread_name, names, known


@ranks
def test_the_stacks_have_the_same_frames_of_torch_and_of_hangwatch(rank: int) -> None:
    assert [_told(stack) for stack in simulated()[rank].stacks] == [_told(stack) for stack in recorded()[rank].stacks]


def _told(stack: ThreadStack) -> tuple[str, bool, list[str]]:
    """The thread, and where its frames come from with their functions; of the user's only that they are there."""
    kinds = [(origin(frame.file), name_of(frame.function)) for frame in stack.frames]
    names = [f"{kind} {name}" if kind in ("torch", "hangwatch") else kind for kind, name in kinds if kind != "stdlib"]
    return stack.name, stack.main, names


@ranks
def test_what_real_evidence_tells_the_simulated_tells_too(rank: int) -> None:
    real, ours = recorded()[rank], simulated()[rank]
    assert real.reading is not None
    assert ours.reading is not None
    pairs: dict[str, tuple[Any, Any]] = {
        "evidence": (real, ours),
        "reading": (real.reading, ours.reading),
        "progress": (real.reading.progress, ours.reading.progress),
        "loader": (real.reading.loaders[0], ours.reading.loaders[0]),
        "process": (real.process, ours.process),
        "collectives": (real.collectives, ours.collectives),
    }
    missing = {
        part: sorted(_said(one) - _said(other) - LEFT_OUT.get(part, set())) for part, (one, other) in pairs.items()
    }
    assert missing == {part: [] for part in pairs}


def _said(record: Any) -> set[str]:
    """The fields of a record that say something."""
    return {entry.name for entry in fields(record) if getattr(record, entry.name) not in (None, (), "", {}, False)}
