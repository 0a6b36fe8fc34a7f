"""A job in memory: how fast it goes by its nodes' own clocks, and how it ends."""

from __future__ import annotations

import pytest

from hangwatch_dashboard.clocks import ClockEstimate
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.live_node import LiveNode
from tests.nodes import FakeNode

NOW = 1_795_200_000.0


def heard(job: LiveJob, node: FakeNode, *, made_at: float, came_at: float) -> None:
    """A batch that was made at one moment, and came at another."""
    clock = ClockEstimate()
    clock.update(came_at, came_at)
    batch = node.batch(made_at)
    before = job.nodes.get(node.name)
    hello = batch.hello or (before.hello if before else None)
    assert hello is not None
    job.apply(LiveNode(node.name, node.boot, batch, hello, came_at, clock))
    job.note(came_at)


@pytest.fixture
def job() -> LiveJob:
    return LiveJob("resnet-1", "job", NOW)


def test_steps_are_counted_by_the_nodes_clock_while_a_spool_is_sent_again(job: LiveJob) -> None:
    node = FakeNode(step=100)
    for second in range(60):  # a minute of two steps a second, sent within three seconds
        node.step = 100 + 2 * second
        heard(job, node, made_at=NOW + second, came_at=NOW + 60 + second / 20)
    assert job.steps_per_s(NOW + 63) == pytest.approx(2.0)


def test_a_slow_node_counts_while_another_sends_its_spool_again(job: LiveJob) -> None:
    live, late = FakeNode("node-a", step=500), FakeNode("node-b", (2, 3), step=10)
    heard(job, late, made_at=NOW - 1, came_at=NOW + 60)
    for second in range(20):
        late.step = 11 + second
        heard(job, live, made_at=NOW + 60 + second / 20, came_at=NOW + 60 + second / 20)
        heard(job, late, made_at=NOW + second, came_at=NOW + 60 + second / 20)
    assert job.steps_per_s(NOW + 61) == pytest.approx(1.0)


def test_nothing_moves_in_a_job_that_is_not_heard_of(job: LiveJob) -> None:
    node = FakeNode()
    for second in range(5):
        node.step += 1
        heard(job, node, made_at=NOW + second, came_at=NOW + second)
    assert job.steps_per_s(NOW + 4) == pytest.approx(1.0)
    assert job.steps_per_s(NOW + 30) == 0.0


def test_time_stands_still_after_the_end(job: LiveJob) -> None:
    node = FakeNode(ranks=(0, 1), still_s=3.0)
    heard(job, node, made_at=NOW, came_at=NOW)
    (found, beat), *_ = job.ranked()
    assert found.still_s(beat, NOW + 10) == 13.0
    assert (job.closed_at, job.ended_badly) == (None, False)
    node.closing, node.exit_code = True, 1
    heard(job, node, made_at=NOW + 1, came_at=NOW + 1)
    (found, beat), *_ = job.ranked()
    assert found.still_s(beat, NOW + 1200) == 3.0
    assert (job.closed_at, job.ended_badly) == (NOW + 1, True)
    assert job.steps_per_s(NOW + 2) == 0.0


def test_a_node_is_not_silent_for_messages_sent_while_the_dashboard_was_away(job: LiveJob) -> None:
    heard(job, FakeNode(), made_at=NOW, came_at=NOW)
    (node,) = job.all_nodes
    assert node.is_silent(NOW + 60)
    node.listened_since = NOW + 58  # the dashboard has started again
    assert not node.is_silent(NOW + 60)
    assert node.silent_s(NOW + 60) == 60
    assert node.is_silent(NOW + 64)
