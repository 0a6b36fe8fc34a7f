from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from hangwatch.model import EPOCHS_KEPT, LoaderFacts, Progress
from hangwatch_agent.board.file_name import start_ticks
from hangwatch_agent.board.layout import board_name
from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.roster.rank_states import Mark, RankState, Roster, mark, newest
from hangwatch_agent.roster.written import Written
from hangwatch_agent.shared.procfs import process_state
from tests.unit.agent.readings import rank_state, reading


def board(folder: Path, rank: int, pid: int, *, restarts: int = 0) -> BoardWriter:
    identity = asdict(reading(rank, pid=pid, environment={"TORCHELASTIC_RESTART_COUNT": str(restarts)}).identity)
    return BoardWriter.create(folder / board_name(pid, 7), identity, start_ticks=7)


def alive(pid: int, ticks: int) -> str:
    return "S"


def states(letters: dict[int, str]) -> Callable[[int, int], str]:
    return lambda pid, ticks: letters.get(pid, "X")


def test_boards_become_standings_by_rank(tmp_path: Path) -> None:
    writers = [board(tmp_path, rank, 100 - rank) for rank in (1, 0)]
    found = Roster(tmp_path, state_of=alive).update(50.0)
    assert [each.rank for each in found] == [0, 1]
    assert all(each.alive for each in found)
    assert len(writers) == 2


def test_a_board_that_is_none_is_kept_aside_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "rank-1-7.board").write_bytes(b"no board")
    roster = Roster(tmp_path, state_of=alive)
    assert roster.update(50.0) == ()
    ((path, reason),) = roster.broken.items()
    assert path.name == "rank-1-7.board"
    assert "not a board" in reason


def test_a_board_that_is_deleted_under_our_feet_is_still_read(tmp_path: Path) -> None:
    writer = board(tmp_path, 0, 100)
    roster = Roster(tmp_path, state_of=alive)
    roster.update(50.0)
    next(tmp_path.glob("*.board")).unlink()
    assert [each.rank for each in roster.update(51.0)] == [0]
    assert writer.real


def test_who_has_gone_is_remembered_with_the_time(tmp_path: Path) -> None:
    board(tmp_path, 0, 100)
    letters = {100: "S"}
    roster = Roster(tmp_path, state_of=states(letters))
    roster.update(50.0)
    letters.clear()
    (gone,) = roster.update(51.0)
    assert (gone.state, gone.since, gone.alive) == ("X", 51.0, False)


def test_movement_is_a_change_of_counters_not_of_clocks() -> None:
    before = reading(progress=Progress(step=5, at=1.0))
    later = replace(before, taken_at=99.0, ticker_at=99.0, progress=Progress(step=5, at=2.0))
    assert mark(before) == mark(later)
    assert mark(before) != mark(replace(before, progress=Progress(step=6, at=2.0)))


def test_one_empty_epoch_after_another_is_no_movement() -> None:
    def after(epoch: int, *drawn: int) -> Mark:
        return mark(reading(loaders=(LoaderFacts(0, None, epoch=epoch, drawn_per_epoch=drawn),)))

    empty = (0,) * EPOCHS_KEPT
    assert after(900, *empty) == after(901, *empty)
    assert after(900, *empty[1:]) != after(901, *empty[1:])  # too few to be sure of
    assert after(900, *empty[1:], 1) != after(901, *empty[2:], 1, 0)


def generation(rank: int, pid: int, restarts: int, state: str) -> RankState:
    environment = {"TORCHELASTIC_RESTART_COUNT": str(restarts)}
    return rank_state(rank, pid=pid, state=state, environment=environment)


def test_ranks_of_an_earlier_restart_are_history() -> None:
    old = [generation(rank, 100 + rank, 0, "X") for rank in (0, 1)]
    new = [generation(0, 200, 1, "S")]
    assert [each.pid for each in newest([*old, *new])] == [200]


def test_two_living_processes_of_one_rank_are_both_kept() -> None:
    assert [each.pid for each in newest([rank_state(0, pid=7), rank_state(0, pid=8)])] == [7, 8]


def test_a_dead_process_of_a_rank_that_lives_again_is_history() -> None:
    assert [each.pid for each in newest([rank_state(0, pid=7, state="X"), rank_state(0, pid=8)])] == [8]


def test_the_state_of_a_process_and_of_one_that_took_its_number() -> None:
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert process_state(os.getpid(), ticks) == process_state(os.getpid(), 0) == "R"
    assert process_state(os.getpid(), ticks + 1) == "X"
    assert process_state(2**22 + 1, 0) == "X"


def test_the_start_stands_in_the_name_of_the_board(tmp_path: Path) -> None:
    assert start_ticks(tmp_path / board_name(12, 3456)) == 3456
    assert start_ticks(tmp_path / "rank-12-x.board") == 0


@pytest.mark.parametrize(("letter", "looked_at"), [("S", True), ("X", False), ("?", False)])
def test_only_what_is_surely_a_rank_is_looked_at_for_what_it_has_written(
    tmp_path: Path, letter: str, looked_at: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pid of a rank that has ended, or that is in another namespace, may be that of any process here."""
    board(tmp_path, 0, 100)
    asked: list[int] = []

    def last(_self: Written, _board: Path, pid: int, _moved_at: float, _now: float) -> float:
        asked.append(pid)
        return 49.0

    monkeypatch.setattr(Written, "last", last)
    (found,) = Roster(tmp_path, state_of=states({100: letter})).update(50.0)
    assert (asked, found.wrote_at) == (([100], 49.0) if looked_at else ([], None))
