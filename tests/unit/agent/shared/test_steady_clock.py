"""A clock that is set while a job runs: ranks, boards and the watchdog go on by the one that never jumps."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

import hangwatch_agent
from hangwatch.looks import Schedule
from hangwatch.model import Job
from hangwatch.settings import Settings
from hangwatch_agent.board import layout as b
from hangwatch_agent.board import local_reader, reader
from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.dashboard_client import link
from hangwatch_agent.dashboard_client import sender as sender_module
from hangwatch_agent.roster.rank_states import Roster
from hangwatch_agent.shared import steady_clock
from hangwatch_agent.watchdog.dashboard_exchange import DashboardExchange
from hangwatch_agent.watchdog.triggers import reasons, rest_after
from tests.unit.agent.readings import reading

HOUR = 3600.0

Set = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Set:
    """Sets the time of day `seconds` ahead, or back; the monotonic clock goes on as it is."""
    wall, wall_ns = time.time, time.time_ns
    ahead = [0.0]
    monkeypatch.setattr(time, "time", lambda: wall() + ahead[0])
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + int(ahead[0] * 1e9))

    def put(seconds: float) -> None:
        ahead[0] = seconds

    return put


@pytest.fixture
def writer(tmp_path: Path) -> BoardWriter:
    return BoardWriter.create(tmp_path / b.board_name(1000, 7), asdict(reading(0).identity), start_ticks=7)


def moves(writer: BoardWriter) -> None:
    writer.words[b.W_FORWARDS] += 1
    writer.words[b.W_MOVED_AT] = writer.words[b.W_TICKER_AT] = time.monotonic_ns()


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_stillness_and_heartbeat_survive_a_clock_that_is_set(
    tmp_path: Path, writer: BoardWriter, set_clock: Set, jump: float
) -> None:
    # GIVEN a rank that moves
    roster = Roster(tmp_path, state_of=lambda pid, ticks: "S")
    moves(writer)
    roster.update(steady_clock.time())
    # WHEN the clock is set, and it moves on
    set_clock(jump)
    time.sleep(0.05)
    moves(writer)
    now = steady_clock.time()
    (each,) = roster.update(now)
    # THEN it has just moved, its ticker is fresh, and no time has passed that has not
    assert 0 <= now - each.moved_at < 20
    assert 0 <= each.reading.taken_at - each.reading.ticker_at < 20
    assert each.state == "S"
    # AND when it stops, it stands still for as long as it does
    time.sleep(0.2)
    later = steady_clock.time()
    (each,) = roster.update(later)
    assert 0.2 <= later - each.moved_at < 20


def test_a_rank_that_started_before_the_clock_was_set_is_read_on_our_clock(tmp_path: Path, writer: BoardWriter) -> None:
    """Its anchor is another one, an hour off; its monotonic clock is ours."""
    moves(writer)
    writer.words[b.W_ANCHOR_NS] -= int(HOUR * 1e9)
    own, ours = reader.read_board(writer.path or Path()), local_reader.read(writer.path or Path()).reading
    assert ours.progress.at - own.progress.at == pytest.approx(HOUR)
    assert ours.identity.started_at - own.identity.started_at == pytest.approx(HOUR)
    assert abs(steady_clock.time() - ours.progress.at) < 20


class Heard:
    def __init__(self) -> None:
        self.offers = 0

    def offer(self, *_: object) -> None:
        self.offers += 1


def test_a_dashboard_gets_messages_when_the_clock_is_set_back(set_clock: Set) -> None:
    heard = Heard()
    talk = DashboardExchange(heard)  # type: ignore[arg-type]
    talk.offer((), steady_clock.time())
    set_clock(-HOUR)
    time.sleep(1.0)
    talk.offer((), steady_clock.time())
    assert heard.offers == 2


class Down:
    """A dashboard that is not there."""

    address = "http://nowhere"

    def send(self, kind: str, body: bytes) -> None:
        raise ConnectionRefusedError("nobody")


def test_a_sender_does_not_rest_for_an_hour(tmp_path: Path, set_clock: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[sender_module.Sender] = []

    class Kept(sender_module.Sender):
        def __init__(self, *args: object, **parts: object) -> None:
            super().__init__(*args, **parts)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(link, "Sender", Kept)
    sender = link.Link(Settings(dashboard="http://127.0.0.1:9"), tmp_path, Job("local-1", "job", None))
    try:
        sender.offer((), steady_clock.time() + 100.0)
        deadline = time.monotonic() + 60
        while not made[0].resting_s and time.monotonic() < deadline:
            time.sleep(0.01)
        set_clock(-HOUR)
        assert made[0].resting_s <= sender_module.LONGEST_PAUSE_S
    finally:
        sender.close(timeout=20.0)


def test_looks_do_not_pause_for_an_hour(tmp_path: Path, writer: BoardWriter, set_clock: Set) -> None:
    """A job that hangs after the clock was set back is looked at as soon as one that hangs before."""
    writer.write("groups", [[0, 0, True, "0", "0-1", "default_pg", "gloo"]])
    writer.words[b.GROUPS_AT + b.G_ISSUED] = 5
    writer.words[b.W_PHASE], writer.words[b.W_PHASE_AT] = b.BACKWARD, time.monotonic_ns()
    moves(writer)
    roster, schedule = Roster(tmp_path, state_of=lambda pid, ticks: "S"), Schedule()
    schedule.looked((), steady_clock.time(), rest_after(0.5))
    set_clock(-HOUR)
    roster.update(steady_clock.time())
    time.sleep(1.2)
    now = steady_clock.time()
    found = reasons(roster.update(now), now, Settings(), world_size=2)
    assert [each.kind for each in found][:1] == ["deadlock"]
    assert schedule.due(found, now) is not None


def test_ranks_write_no_time_of_day_on_their_board() -> None:
    """It would be read as a time since the machine started, and the rank seem to live in the far future."""
    files = list((Path(hangwatch_agent.__file__).parent / "rank").rglob("*.py"))
    assert len(files) > 20
    code = {path.name: path.read_text().replace("steady_clock.", "") for path in files}
    wrong = [name for name, text in code.items() if re.search(r"\btime\.time(_ns)?\b", text)]
    assert wrong == []
