"""The ticker of a rank that moves leaves it alone; that of one that stands still looks at every tick."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangwatch_agent.board import layout as b
from hangwatch_agent.rank import guard, ticker
from hangwatch_agent.rank.group import Group
from hangwatch_agent.rank.hooks.context import Context

A_TICK = 0.2


class Rank:
    """A rank whose ticks are called by hand, on a clock that is set by hand; `looks` counts the looks."""

    def __init__(self) -> None:
        self.context = Context()
        self.now = 1000.0
        self.looks = 0
        self.ticker = ticker.Ticker(self.context, A_TICK, (self._look,), lambda: None)

    def _look(self) -> None:
        self.looks += 1

    def monotonic_ns(self) -> int:
        return round(self.now * 1e9)

    def ticks(self, count: int, *, moves: int | None = None) -> int:
        """The looks in so many ticks; the rank moves by word `moves` before each."""
        before = self.looks
        for _ in range(count):
            if moves is not None:
                self.context.board.words[moves] += 1
            self.now += A_TICK
            self.ticker.tick()
        return self.looks - before


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    made = Rank()
    monkeypatch.setattr(time, "monotonic_ns", made.monotonic_ns)
    guard.raise_swallowed(True)
    made.ticks(2)
    yield made
    guard.raise_swallowed(False)


@pytest.mark.parametrize("word", ticker.MOVES)
def test_a_rank_that_moves_is_looked_at_once_a_second(rank: Rank, word: int) -> None:
    assert rank.ticks(50, moves=word) == pytest.approx(10, abs=1)


def test_a_rank_that_stands_still_is_looked_at_at_every_tick(rank: Rank) -> None:
    rank.ticks(7, moves=b.W_FORWARDS)
    assert rank.ticks(10) == 10


def test_every_tick_says_that_the_ticker_lives(rank: Rank) -> None:
    rank.ticks(3, moves=b.W_STEPS_WRITTEN)
    assert rank.context.board.words[b.W_TICKER_AT] == rank.monotonic_ns()


def test_a_look_that_is_asked_for_does_not_wait(rank: Rank) -> None:
    rank.ticks(1, moves=b.W_FORWARDS)
    rank.context.board.words[b.W_REQUEST] = 1
    assert rank.ticks(1, moves=b.W_FORWARDS) == 1


def test_a_look_that_fails_keeps_nothing_from_the_others(rank: Rank) -> None:
    def fails() -> None:
        raise OSError("no such file")

    guard.raise_swallowed(False)
    rank.ticker.look_too(fails)
    rank.ticker.look_too(threading.Event().set)
    assert rank.ticks(3) == 3
    assert rank.context.guard.swallowed == 3


class Pg:
    """Stands in for torch's process group: three collectives were issued."""

    group_name = "0"

    def _get_sequence_number_for_group(self) -> int:
        return 3


class Recorder:
    """Stands in for torch's flight recorder: what it says at each look."""

    def __init__(self, *said: int | None) -> None:
        self.said = list(said)

    def status(self, backends: set[str]) -> dict[str, dict[str, Any]]:
        done = self.said.pop(0)
        status = {"last_completed_collective": done, "last_enqueued_collective": done}
        return {"gloo": {} if done is None else {"0": status}}


@pytest.mark.parametrize(
    ("said", "completed", "estimated"),
    [((None, 2), 2, False), ((None, None), 3, True)],
    ids=["recorded a moment later", "recorder is off"],
)
def test_a_call_that_torch_has_counted_may_not_be_recorded_yet(
    rank: Rank, said: tuple[int | None, ...], completed: int, estimated: bool
) -> None:
    pg = Pg()
    rank.context.groups.slots.append(group := Group(0, pg, (0, 1), "gloo"))
    group.records["gloo"] = 0
    rank.ticker._recorder = Recorder(*said)  # type: ignore[assignment]
    rank.ticks(1)
    assert rank.context.board.problems == {}
    rank.ticks(1)
    assert rank.context.board.words[b.GROUPS_AT + b.G_COMPLETED] == completed
    assert any("recorder is off" in problem for problem in rank.context.board.problems) is estimated


def test_a_program_that_joins_all_threads_meets_its_own_only(tmp_path: Path) -> None:
    context, looked, asked = Context(), threading.Event(), threading.Event()
    context.board.open(tmp_path / "a.board", {}, start_ticks=1)
    ticking = ticker.Ticker(context, 0.01, (looked.set,), asked.set)
    before = set(threading.enumerate())  # threads of other tests among them, which may end
    ticking.start()
    try:
        assert looked.wait(100)
        context.board.words[b.W_REQUEST] = 1
        assert asked.wait(100)
        assert set(threading.enumerate()) <= before
    finally:
        ticking.stop()
        context.board.forget()


def test_a_ticker_that_was_stopped_ticks_no_more(tmp_path: Path) -> None:
    context, looked = Context(), threading.Event()
    context.board.open(tmp_path / "a.board", {}, start_ticks=1)
    ticking = ticker.Ticker(context, 0.01, (looked.set,), lambda: None)
    ticking.start()
    assert looked.wait(100)
    ticking.stop()
    assert ticking._over.wait(100)  # a tick that was under way on a busy machine
    looked.clear()
    assert not looked.wait(0.3)
    context.board.forget()
