from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch import wire
from hangwatch.records import Collective, Collectives, GroupHead, Identity, Reading
from hangwatch_agent.capture import collectives

CALL = Collective("0", 4, "all_reduce")
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
    found, failure = taken(tmp_path, writer(wire.dumps(RECORDED)))
    assert failure == ""
    assert found == replace(RECORDED, open_calls=(OPEN,))


def test_an_old_answer_is_not_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "WAIT_S", 0.1)
    (tmp_path / "collectives-7.json").write_text(wire.dumps(RECORDED))
    found, failure = taken(tmp_path, lambda board, pid: None)
    assert (found.source, found.recent) == ("board", (CALL,))
    assert failure.startswith("no answer within 0.1 s")


def test_an_answer_that_comes_while_it_is_waited_for(tmp_path: Path) -> None:
    asked = collectives.ask(tmp_path / "rank-0.board", 7, lambda board, pid: None)

    def sleep(seconds: float) -> None:
        temporary = tmp_path / "new"
        temporary.write_text(wire.dumps(RECORDED))
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
    assert (found.source, found.recent) == ("board", (CALL,))
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
    (tmp_path / "collectives-7.json").write_text(wire.dumps(RECORDED))
    assert collectives.left_behind(tmp_path / "rank-0.board", 7, BOARD).source == "flight-recorder"
