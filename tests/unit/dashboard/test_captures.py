"""Captures: what is judged, and where: of many nodes in a process of its own, so that batches need not wait."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hangwatch.model import NodeCapture, NodeFacts
from hangwatch.wire import codec
from hangwatch_dashboard import captures, judge
from hangwatch_dashboard.capture_reader import MANY_NODES
from hangwatch_dashboard.captures import Captures
from hangwatch_dashboard.clocks import ClockEstimate
from hangwatch_dashboard.hub import Hub
from hangwatch_dashboard.live import RETELL_S, TELL_ALL_S, TELL_AT_ONCE, LiveCapture, LiveJob
from hangwatch_dashboard.live_node import LiveNode
from hangwatch_dashboard.store.rows import CaptureRow, PartRow
from hangwatch_dashboard.store.store import Store
from tests.examples import uneven_steps_snapshot
from tests.nodes import FakeNode, body

NOW = 1000.0


def hung(nodes: int) -> tuple[LiveJob, LiveCapture, list[PartRow]]:
    """A job of so many nodes, a capture of it, and the part of each node: little evidence, that compresses well."""
    job = LiveJob("resnet-1", "10.0.0.1:29500", NOW)
    whole = uneven_steps_snapshot()
    parts = []
    for number in range(nodes):
        node = FakeNode(f"node-{number}", (number,), nodes)
        batch = node.batch(NOW)
        assert batch.hello is not None
        job.apply(LiveNode(node.name, "boot-1", batch, batch.hello, NOW, ClockEstimate()))
        own = replace(
            whole,
            job=replace(whole.job, world_size=nodes),
            ranks=(replace(whole.ranks[0], rank=number, host=node.name),),
            nodes=(NodeFacts(host=node.name, ranks=node.ranks),),
        )
        parts.append(PartRow("c-1", node.name, NOW, 0.0, gzip.compress(body(node.capture(own, "c-1")))))
    row = CaptureRow("c-1", job.key, "no rank moves", NOW, NOW, "asked", tuple(job.nodes))
    return job, LiveCapture(row, answered=set(job.nodes)), parts


def test_what_is_known_besides_the_parts_may_hold_half_a_character() -> None:
    """GIVEN a host whose name is no whole text, which the fast writer refuses THEN it is written all the same."""
    job, _, _ = hung(2)
    node = job.nodes["node-1"]
    job.apply(replace(node, hello=replace(node.hello, host="b\ud800")))
    rest = codec.loads(NodeCapture, captures._rest(job, set(), NOW))
    assert [facts.host for facts in rest.snapshot.nodes] == ["node-0", "b\ud800"]


@pytest.mark.parametrize(("nodes", "apart"), [(2, False), (MANY_NODES, True)])
def test_a_capture_of_many_nodes_is_judged_in_a_process_of_its_own(
    nodes: int, apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its evidence is small: the judgement takes as long as its ranks are many."""
    here: list[judge.Case] = []
    judge_here = judge.judge

    def counting(case: judge.Case, *diagnose: Any) -> judge.Judged:
        here.append(case)
        return judge_here(case, *diagnose)

    async def judged(store: Store) -> judge.Judged:
        # GIVEN a hung job, each node of which has sent its part
        job, capture, parts = hung(nodes)
        for part in parts:
            await asyncio.wrap_future(store.put_part(part))
        # WHEN the capture is judged
        return await Captures(store, Hub(1), lambda: NOW, None)._judge(job, capture)

    monkeypatch.setattr(judge, "judge", counting)
    store = Store(str(tmp_path / "dashboard.db"), "test")
    try:
        found = asyncio.run(judged(store))
    finally:
        store.close()
    # THEN the interpreter of this process, which takes batches, has done it only where the nodes are few
    assert bool(here) is not apart
    assert found.head.job.world_size == nodes


def told_at(capture: LiveCapture, times: Sequence[float]) -> list[int]:
    """How many nodes have been told at each moment, where the batch of each node comes at all of them."""
    counts = []
    for now in times:
        for node in capture.row.nodes_asked:
            if capture.waits_for(node) and capture.may_tell(node, now):
                capture.told[node] = now
        counts.append(len(capture.told))
    return counts


def asked(nodes: int) -> LiveCapture:
    names = tuple(f"node-{number}" for number in range(nodes))
    return LiveCapture(CaptureRow("c-1", "resnet-1", "no rank moves", NOW, NOW, "asked", names), NOW)


def test_few_nodes_are_told_of_a_capture_at_once() -> None:
    assert told_at(asked(TELL_AT_ONCE), [NOW]) == [TELL_AT_ONCE]


@pytest.mark.parametrize("nodes", [1250, 16_384])
def test_many_nodes_are_told_one_after_another_and_all_in_time(nodes: int) -> None:
    counts = told_at(asked(nodes), [NOW + second for second in range(int(TELL_ALL_S) + 1)])
    assert counts[0] == TELL_AT_ONCE
    assert all(after - before <= nodes / 3 for before, after in pairwise(counts))
    assert counts[-1] == nodes


def test_a_node_that_has_not_answered_is_told_again_after_a_while() -> None:
    capture = asked(2)
    told_at(capture, [NOW])
    capture.answered.add("node-0")
    assert not capture.may_tell("node-1", NOW + RETELL_S - 0.1)
    assert capture.may_tell("node-1", NOW + RETELL_S)
    assert not capture.waits_for("node-0")
    assert not capture.complete
    capture.answered.add("node-1")
    assert capture.complete
