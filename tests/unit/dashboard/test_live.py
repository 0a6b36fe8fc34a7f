"""A job in memory: how fast it goes by its nodes' own clocks, and how it ends."""

from __future__ import annotations

import pytest

from hangwatch_agent.dashboard_client import sender
from hangwatch_dashboard import live_node
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


def test_a_node_is_not_silent_before_it_could_try_again(job: LiveJob) -> None:
    heard(job, FakeNode(still_s=1.0), made_at=NOW, came_at=NOW)
    (node,) = job.all_nodes
    assert node.is_silent(NOW + 60)
    assert job.state(NOW + 60) == "silent"
    # WHEN the dashboard has started again THEN the node has the time of its longest pause, and five seconds
    job.listen_from(NOW + 58)
    assert not node.is_silent(NOW + 92)
    assert job.state(NOW + 92) != "silent"
    assert node.silent_s(NOW + 60) == 60
    # AND what it said last is not made older: its ranks may have moved meanwhile
    assert node.still_s(node.batch.ranks[0], NOW + 92) == 1.0
    assert node.is_silent(NOW + 94)
    assert job.state(NOW + 94) == "silent"


def test_when_no_node_came_through_the_first_to_come_back_makes_no_other_silent(job: LiveJob) -> None:
    for name, ranks in (("node-a", (0, 1)), ("node-b", (2, 3))):
        heard(job, FakeNode(name, ranks), made_at=NOW, came_at=NOW)
    heard(job, FakeNode("node-a", step=9), made_at=NOW + 60, came_at=NOW + 60)
    assert not job.nodes["node-b"].is_silent(NOW + 70)
    # WHEN only one of them goes on THEN the other is silent at once
    for second in range(61, 80):
        heard(job, FakeNode("node-a", step=second), made_at=NOW + second, came_at=NOW + second)
        heard(job, FakeNode("node-b", (2, 3)), made_at=NOW + second, came_at=NOW + min(second, 70))
    assert job.nodes["node-b"].is_silent(NOW + 79)
    assert not job.nodes["node-a"].is_silent(NOW + 79)


def test_the_longest_pause_is_that_of_the_sender() -> None:
    assert live_node.BACKOFF_S == sender.LONGEST_PAUSE_S
