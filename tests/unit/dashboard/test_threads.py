"""Large jobs are looked at in threads, while batches and judgements come: nothing is seen by halves, or lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from hangwatch_dashboard import aside, live, views
from hangwatch_dashboard.clocks import ClockEstimate
from hangwatch_dashboard.hub import Hub, Reader
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.live_node import LiveNode
from hangwatch_dashboard.watch import Watch
from tests.examples import uneven_steps_judgement
from tests.nodes import FakeNode

NOW = 1_795_200_000.0


class Training:
    """A job of two nodes; each `batch` is one of every node, a second later."""

    def __init__(self) -> None:
        self.job = LiveJob("resnet-1", "job", NOW)
        self.now = NOW
        self._nodes = [FakeNode("node-a", (0, 1)), FakeNode("node-b", (2, 3))]
        self.batch()

    def batch(self) -> None:
        self.now += 1.0
        for node in self._nodes:
            node.step += 1
            batch, before = node.batch(self.now), self.job.nodes.get(node.name)
            hello = batch.hello or (before.hello if before else None)
            assert hello is not None
            self.job.apply(LiveNode(node.name, node.boot, batch, hello, self.now, ClockEstimate()))

    def trains(self, seconds: int) -> None:
        for _ in range(seconds):
            self.batch()
            self.job.note(self.now)


@pytest.fixture
def training() -> Training:
    return Training()


class Sudden(float):
    """A number. Something happens as soon as another one is held against it."""

    happens: Callable[[], object]

    def __le__(self, other: float) -> bool:
        self.happens()
        return super().__le__(other)

    def __ge__(self, other: float) -> bool:
        self.happens()
        return super().__ge__(other)


def sudden(value: float, happens: Callable[[], object]) -> Sudden:
    made = Sudden(value)
    made.happens = happens
    return made


async def _nothing(*_: object) -> None:
    return None


async def looked(training: Training) -> list[str]:
    """The events that one look sends to a reader of the job."""
    hub = Hub(1)
    reader = Reader({training.job.key})
    hub.readers.add(reader)
    store: Any = SimpleNamespace(is_postgresql=False, put_run=lambda key, **values: None)
    parts: Any = SimpleNamespace(tick=_nothing, close_if_moving=_nothing, clear=_nothing)
    await Watch(store, parts, parts, parts, hub, lambda: training.now).look(training.job)
    return [event for event, _, _ in reader._waiting]


def test_a_look_in_a_thread_sees_the_job_as_it_began(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    training.trains(3)

    def meanwhile(items: Sequence[Any]) -> Iterator[Any]:
        training.batch()
        training.job.judgement = None
        yield from items

    # GIVEN a job that is looked at in a thread WHEN a batch of every node comes in the middle of each look
    monkeypatch.setattr(aside, "MANY_RANKS", 0)
    monkeypatch.setattr(live, "unhurried", meanwhile)
    # THEN readers get all of it
    assert asyncio.run(looked(training)) == ["jobs", "ranks", "job", "collectives"]


def test_what_comes_later_is_not_seen(training: Training) -> None:
    job, now = training.job, training.now
    job.judgement = uneven_steps_judgement(4, 3, 2)
    seen = job.as_now()
    before = [view(seen, now) for view in (views.rank_columns, views.job_detail, views.group_columns)]
    training.batch()
    job.judgement = None
    assert [view(seen, now) for view in (views.rank_columns, views.job_detail, views.group_columns)] == before


def test_news_that_come_while_a_thread_notes_are_not_lost(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    job, before = training.job, training.job.facts_revision

    def meanwhile(*_: object) -> bool:
        job.facts_revision += 1  # as the event loop does for a node that joins, or an incident that opens
        return False

    monkeypatch.setattr(job.health, "note", meanwhile)
    assert not job.note(training.now + 1)
    assert job.facts_revision == before + 1


def test_the_rate_is_told_while_a_thread_notes(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    training.trains(20)
    now = training.now
    monkeypatch.setattr(live, "RATE_WINDOW_S", sudden(10.0, lambda: training.trains(1)))
    assert training.job.steps_per_s(now) == pytest.approx(1.0)


def test_the_history_is_told_while_a_thread_notes(training: Training) -> None:
    training.trains(5)
    since = sudden(training.now - 2, lambda: training.trains(1))
    assert len(training.job.history.columns(since, (0, 1, 2, 3))["at"]) == 3
