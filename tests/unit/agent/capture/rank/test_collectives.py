from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.model import Collective, Collectives, GroupHead, Identity, Phase, Reading
from hangwatch.wire import codec
from hangwatch_agent.capture.rank import collectives

CALL = Collective("0", 4, "all_reduce")
UNFINISHED = replace(CALL, retired=False)
OPEN = Collective("0", 5, "barrier")
BOARD = Reading(
    Identity(0, 2, 0, "here", 7, 0.0, "job"),
    0.0,
    heads=(GroupHead("0", (0, 1), issued=5),),
    calls=(CALL,),
    open_calls=(OPEN,),
)
RECORDED = Collectives((GroupHead("0", (0, 1), issued=6),), (CALL, OPEN), (), "flight-recorder", 0.03)


def writer(text: str) -> Callable[[Path, int], None]:
    def write(board: Path, pid: int) -> None:
        (board.parent / f"collectives-{pid}.json").write_text(text)

    return write


def taken(folder: Path, request: Callable[[Path, int], None] | None) -> tuple[Collectives, str]:
    asked = collectives.ask(folder / "rank-0.board", 7, request)
    found, note = collectives.answer(asked, BOARD, rank=0)
    assert (note.source, note.rank, note.ok) == ("collectives", 0, not note.detail)
    return found, note.detail


def test_the_recorder_with_the_boards_open_calls(tmp_path: Path) -> None:
    found, failure = taken(tmp_path, writer(codec.dumps(RECORDED)))
    assert failure == ""
    assert found == replace(RECORDED, open_calls=(OPEN,))


def test_an_old_answer_is_not_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "WAIT_S", 0.1)
    (tmp_path / "collectives-7.json").write_text(codec.dumps(RECORDED))
    found, failure = taken(tmp_path, lambda board, pid: None)
    assert (found.source, found.recent) == ("board", (UNFINISHED,))
    assert failure.startswith("no answer within ")


@pytest.mark.parametrize(("phase", "why"), [(Phase.STEP, "frozen"), (Phase.FINALIZING, "on its way out")])
def test_why_a_rank_gives_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: Phase, why: str) -> None:
    monkeypatch.setattr(collectives, "WAIT_S", 0.05)
    asked = collectives.ask(tmp_path / "rank-0.board", 7, lambda board, pid: None)
    assert why in collectives.answer(asked, replace(BOARD, phase=phase))[1].detail


def test_an_answer_that_comes_while_it_is_waited_for(tmp_path: Path) -> None:
    asked = collectives.ask(tmp_path / "rank-0.board", 7, lambda board, pid: None)

    def sleep(seconds: float) -> None:
        temporary = tmp_path / "new"
        temporary.write_text(codec.dumps(RECORDED))
        temporary.replace(tmp_path / "collectives-7.json")

    assert collectives.answer(asked, BOARD, sleep=sleep)[0].source == "flight-recorder"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"heads": 3}', '{"source": "\\ud800"}', '{"answer_cpu_s": NaN}', '{"heads": [{}]}']
)
def test_hostile_answers(tmp_path: Path, text: str) -> None:
    found, failure = taken(tmp_path, writer(text))
    assert found.source == ("board" if failure else found.source)
    assert failure == "" or failure.startswith("the answer cannot be read")


def test_a_rank_that_is_stopped_is_not_waited_for(tmp_path: Path) -> None:
    def never(seconds: float) -> None:
        raise AssertionError("it waited")

    asked = collectives.ask(tmp_path / "rank-0.board", 7, lambda board, pid: None)
    found, note = collectives.answer(asked, BOARD, rank=0, stopped=True, sleep=never)
    assert (found.source, found.recent) == ("board", (UNFINISHED,))
    assert note.detail.startswith("the rank is stopped; taken from the board")


def test_a_rank_that_cannot_be_asked_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "WAIT_S", 60.0)

    def refuse(board: Path, pid: int) -> None:
        raise FileNotFoundError(2, "the board is gone")

    began = time.monotonic()
    assert "the board is gone" in taken(tmp_path, refuse)[1]
    assert taken(tmp_path, None)[1].startswith("the rank cannot be asked")
    assert time.monotonic() - began < 10


def test_what_a_dead_rank_left(tmp_path: Path) -> None:
    assert collectives.left_behind(tmp_path / "rank-0.board", 7, BOARD).source == "board"
    (tmp_path / "collectives-7.json").write_text(codec.dumps(RECORDED))
    assert collectives.left_behind(tmp_path / "rank-0.board", 7, BOARD).source == "flight-recorder"


def test_a_rank_that_has_ended_is_not_waited_for_and_its_board_tells(tmp_path: Path) -> None:
    asked = collectives.ask(tmp_path / "rank-0.board", 7, lambda board, pid: None)
    found, note = collectives.answer(asked, BOARD, rank=0, ended=True)  # it would wait for 0.5 s and say so
    assert (found.source, found.recent, note.ok) == ("board", (UNFINISHED,), True)
    assert "has ended" in note.detail


def test_calls_after_an_answer_of_long_ago_come_from_the_board(tmp_path: Path) -> None:
    """GIVEN an answer of an earlier look WHEN the rank dies later THEN what it called since is not lost."""
    old = Collectives((GroupHead("0", (0, 1), issued=2, completed=1),), (
        Collective("0", 1, "all_reduce", retired=True, at=1.0),
        Collective("0", 2, "all_reduce", retired=False, at=2.0),
    ), (), "flight-recorder")  # fmt: skip
    (tmp_path / "collectives-7.json").write_text(codec.dumps(old))
    heads = (GroupHead("0", (0, 1), issued=4, completed=3),)
    calls = tuple(Collective("0", seq, "all_reduce", at=float(seq)) for seq in (2, 3, 4))
    found = collectives.left_behind(tmp_path / "rank-0.board", 7, replace(BOARD, heads=heads, calls=calls))
    assert [(call.seq, call.retired) for call in found.recent] == [(1, True), (2, True), (3, True), (4, False)]
    assert (found.heads, found.open_calls) == (heads, (OPEN,))


class Machine:
    """A clock that sleeps move on, each `slow` times as far as was wanted."""

    def __init__(self, slow: float = 1.0) -> None:
        self.now, self.slow = 0.0, slow

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds * self.slow


def waited(folder: Path, *, load: float = 0.5, slow: float = 1.0, taken_up: bool = False) -> float:
    """For how long an answer that never comes is waited for."""
    machine = Machine(slow)
    asked = replace(
        collectives.ask(folder / "rank-0.board", 7, lambda board, pid: None, lambda board: taken_up), began=0.0
    )
    found, _ = collectives.answer(asked, BOARD, sleep=machine.sleep, load=lambda: load, clock=machine.clock)
    assert found.source == "board"
    return machine.now


def test_a_quiet_machine_is_not_waited_for_longer(tmp_path: Path) -> None:
    assert waited(tmp_path) == pytest.approx(0.5, abs=0.1)


def test_a_busy_machine_is_given_time_in_proportion(tmp_path: Path) -> None:
    assert waited(tmp_path, load=4.0) == pytest.approx(2.0, abs=0.1)
    assert waited(tmp_path, slow=8.0) == pytest.approx(2.0, abs=0.3)
    assert waited(tmp_path, load=1000.0) == pytest.approx(collectives.MOST_S, abs=0.1)


def test_a_rank_that_is_at_it_is_waited_for(tmp_path: Path) -> None:
    assert waited(tmp_path, taken_up=True) == pytest.approx(collectives.MOST_S, abs=0.1)


def test_the_load_of_a_machine(tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text("0.20 0.18 0.12 6/80 11206\n")
    assert collectives.load(tmp_path / "loadavg", 2) == 3.0
    assert collectives.load(tmp_path / "none", 2) == 0.0
    assert collectives.load() > 0
