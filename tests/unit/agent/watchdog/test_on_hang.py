"""What we end is history: one fault, one incident, and the right exit code."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.model import Incident, Status
from hangwatch.settings import Settings
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.watchdog import abort
from hangwatch_agent.watchdog.on_hang import OnHang
from tests.unit.agent.readings import rank_state
from tests.unit.agent.watchdog.test_loop import World, pair


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was ended instead of real processes."""
    calls: list[str] = []

    def ranks(rank_states: Sequence[RankState], *_: object) -> list[int]:
        calls.append(f"ranks {[each.pid for each in rank_states]}")
        return []

    def job(rank_states: Sequence[RankState], *_: object) -> list[int]:
        calls.append(f"job {[each.pid for each in rank_states]}")
        return []

    monkeypatch.setattr(abort, "end_ranks", ranks)
    monkeypatch.setattr(abort, "end_job", job)
    monkeypatch.setattr(abort, "end_idle_command", lambda *_: False)
    return calls


@pytest.fixture
def world(tmp_path: Path, ended: list[str]) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.watchdog.halt()


def aborting(world: World, how: str) -> World:
    world.watchdog.ending = OnHang(Settings(on_hang=how), None, world.watchdog.incidents.say, clock=world.clock)
    world.watchdog.response.on_hang = world.watchdog.end
    world.hangs()
    for now in (11.5, 12.0):
        world.look(now, *pair())
    world.watchdog.finish_abort(5.0)
    return world


def gone() -> tuple[RankState, RankState]:
    first, second = pair()
    return replace(first, state="X", since=12.0), replace(second, state="X", since=12.0)


def incidents(world: World) -> list[Incident]:
    book = world.watchdog.incidents
    return [*book.closed, *([book.open] if book.open else [])]


def test_abort_ends_the_job_and_the_incident_stands_as_it_was(world: World, ended: list[str]) -> None:
    aborting(world, "abort")
    world.fails()
    for now in (12.5, 13.5, 60.0):
        world.look(now, *gone())
    world.watchdog.close(exit_code=-15)
    assert ended == ["job [1000, 1001]"]
    assert [each.status for each in incidents(world)] == [Status.HUNG]
    assert "RECOVERED" not in world.stream.getvalue()
    assert world.watchdog.was_aborted(-15)
    assert world.watchdog.was_aborted(0)  # a launcher that hides how its ranks ended


def test_ranks_that_move_while_they_are_ended_have_not_recovered(world: World) -> None:
    aborting(world, "abort")
    world.look(12.5, *pair(moved_at=12.4))
    world.look(13.5, *pair(moved_at=13.4))
    assert [each.status for each in incidents(world)] == [Status.HUNG]


def test_a_later_attempt_that_succeeds_makes_it_good(world: World, ended: list[str]) -> None:
    aborting(world, "abort-attempt")
    world.fails()
    world.look(12.5, *gone())
    assert world.watchdog.was_aborted(0)  # nothing came after it yet
    again = [rank_state(rank, pid=77 + rank, moved_at=20.0) for rank in (0, 1)]
    world.look(20.0, *gone(), *again)
    world.look(21.0, *gone(), *(replace(each, moved_at=21.0) for each in again))
    assert ended == ["ranks [1000, 1001]"]
    assert [each.status for each in incidents(world)] == [Status.HUNG]
    assert not world.watchdog.was_aborted(0)
    assert world.watchdog.was_aborted(1)


def test_a_later_attempt_that_hangs_is_an_incident_of_its_own(world: World, ended: list[str]) -> None:
    aborting(world, "abort-attempt")
    again = [
        rank_state(rank, pid=77 + rank, moved_at=20.0, heads=each.reading.heads) for rank, each in enumerate(pair())
    ]
    world.look(20.0, *gone(), *again)
    for now in (21.5, 22.0):
        world.look(now, *gone(), *again)
    world.watchdog.finish_abort(5.0)
    assert ended == ["ranks [1000, 1001]", "ranks [77, 78]"]
    assert len(incidents(world)) == 2
    assert world.watchdog.was_aborted(0)


def test_an_abort_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN an abort under way WHEN the command has ended THEN it is finished first."""
    release, done = threading.Event(), []

    def slow(*_: object) -> list[int]:
        release.wait(60)
        done.append(True)
        return []

    monkeypatch.setattr(abort, "end_job", slow)
    ending = OnHang(Settings(on_hang="abort"), None, lambda line: None)
    world_incident = Incident.__new__(Incident)
    object.__setattr__(world_incident, "status", Status.HUNG)
    object.__setattr__(world_incident, "verdict", type("Verdict", (), {"culprits": ()})())
    assert ending.begin(world_incident, pair(), ())
    threading.Timer(0.3, release.set).start()
    ending.finish(60.0)
    assert done == [True]
