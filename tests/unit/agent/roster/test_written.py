"""Ranks that have written something while their counters stood still, by a made-up /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch_agent.roster.written import LOOK_S, Written

PID = 100
BOARD = Path(f"rank-{PID}-7.board")


class Processes:
    """A /proc with what each process has written, and its children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, pid: int, written: int, *children: int) -> None:
        task = self.folder / str(pid) / "task" / str(pid)
        task.mkdir(parents=True, exist_ok=True)
        (self.folder / str(pid) / "io").write_text(f"rchar: 7\nwchar: {written}\nsyscr: 1\n")
        (task / "children").write_text("".join(f"{child} " for child in children))

    def open(self, pid: int, *files: str) -> None:
        folder = self.folder / str(pid) / "fd"
        folder.mkdir(parents=True, exist_ok=True)
        for each in folder.iterdir():
            each.unlink()
        for number, file in enumerate(files):
            (folder / str(number)).symlink_to(file)


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path / "proc")


@pytest.fixture
def written(tmp_path: Path, processes: Processes) -> Written:
    processes.put(PID, 10)
    return Written(tmp_path, processes.folder)


def test_a_rank_that_prints_while_it_stands_still(written: Written, processes: Processes) -> None:
    assert written.last(BOARD, PID, 0.0, LOOK_S) is None  # nothing to compare with
    processes.put(PID, 60)
    assert written.last(BOARD, PID, 0.0, LOOK_S + 1) is None  # it is looked at now and then
    assert written.last(BOARD, PID, 0.0, 2 * LOOK_S) == 2 * LOOK_S
    assert written.last(BOARD, PID, 0.0, 9 * LOOK_S) == 2 * LOOK_S  # and not since


def test_what_a_process_of_its_own_writes_counts_and_one_that_is_new_does_not(
    written: Written, processes: Processes
) -> None:
    written.last(BOARD, PID, 0.0, LOOK_S)
    processes.put(PID, 10, 200)
    processes.put(200, 400, 300)
    processes.put(300, 500)
    assert written.last(BOARD, PID, 0.0, 2 * LOOK_S) is None
    processes.put(300, 501)
    assert written.last(BOARD, PID, 0.0, 3 * LOOK_S) == 3 * LOOK_S


def test_one_child_after_the_other_is_work(written: Written, processes: Processes) -> None:
    processes.put(PID, 10, 200)
    processes.put(200, 0)
    written.last(BOARD, PID, 0.0, LOOK_S)
    processes.put(PID, 10)  # it has ended, and nothing came behind it
    assert written.last(BOARD, PID, 0.0, 2 * LOOK_S) is None
    processes.put(PID, 10, 201)
    processes.put(201, 0)
    assert written.last(BOARD, PID, 0.0, 3 * LOOK_S) is None
    processes.put(PID, 10, 202)
    processes.put(202, 0)
    assert written.last(BOARD, PID, 0.0, 4 * LOOK_S) == 4 * LOOK_S


def test_one_connection_after_the_other_is_work(written: Written, processes: Processes) -> None:
    processes.open(PID, "socket:[41]", "/dev/null", "socket:[7]")
    written.last(BOARD, PID, 0.0, LOOK_S)
    assert written.last(BOARD, PID, 0.0, 2 * LOOK_S) is None  # the same ones
    processes.open(PID, "socket:[42]", "pipe:[1]", "socket:[7]")
    assert written.last(BOARD, PID, 0.0, 3 * LOOK_S) == 3 * LOOK_S


def test_once_it_has_moved_all_begins_anew(written: Written, processes: Processes) -> None:
    written.last(BOARD, PID, 0.0, LOOK_S)
    processes.put(PID, 60)
    assert written.last(BOARD, PID, 0.0, 2 * LOOK_S) == 2 * LOOK_S
    assert written.last(BOARD, PID, 11.0, 12.0) is None
    assert written.last(BOARD, PID, 11.0, 11.0 + LOOK_S) is None


@pytest.mark.parametrize("name", [f"collectives-{PID}.json", f"stacks-{PID}.txt", f"lock-{PID}.txt"])
def test_what_it_writes_for_us_is_no_sign_of_work(
    written: Written, processes: Processes, tmp_path: Path, name: str
) -> None:
    written.last(BOARD, PID, 0.0, LOOK_S)
    processes.put(PID, 900)
    (tmp_path / name).write_text("for the watchdog")
    assert written.last(BOARD, PID, 0.0, 2 * LOOK_S) is None
    assert written.last(BOARD, PID, 0.0, 3 * LOOK_S) is None


def test_counters_that_are_not_ours_to_read_say_nothing(tmp_path: Path) -> None:
    written = Written(tmp_path, tmp_path / "no-proc")
    assert written.last(BOARD, PID, 0.0, LOOK_S) is None
    assert written.last(BOARD, PID, 0.0, 2 * LOOK_S) is None
