"""The watchdog that ranks have started with attach: told to end, killed, and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hangwatch.settings import Settings
from hangwatch_agent.board import directory
from hangwatch_agent.board.layout import board_name
from hangwatch_agent.watchdog import start
from hangwatch_agent.watchdog.keeper import EVERY_S, MOST_STARTS, Keeper
from tests.ports import free_port

RANK = """
import hangwatch, sys, time
hangwatch.attach()
print("attached", flush=True)
sys.stdin.readline()
"""


def soon(true: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 100
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(true())


def watchdog_pid(boards: Path) -> int:
    """The living watchdog of the only job; 0 where there is none.

    Its lock is left alone: one that is held for a look, at the moment when a watchdog starts, turns that one away.
    """
    for file in boards.glob(f"*/{directory.WATCHDOG_PID}"):
        with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):  # it goes this moment
            pid = int(file.read_text() or 0)
            if pid and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return pid
    return 0


@pytest.fixture
def left_behind(tmp_path: Path) -> Path:
    """The folder of an older job whose ranks and watchdog were killed together."""
    folder = directory.private(directory.private(tmp_path / "boards") / "local-1-2")
    (folder / directory.WATCHDOG_LOCK).touch()
    (folder / board_name(os.getpid(), 7)).touch()  # this number is another process's by now
    an_hour_ago = time.time() - 3600
    os.utime(folder, (an_hour_ago, an_hour_ago))
    return folder


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {
        **os.environ,
        "HANGWATCH_RUN_DIR": str(tmp_path / "boards"),
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "HANGWATCH_START_AFTER": "500",
    }
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", RANK], cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "attached\n"
        assert soon(lambda: watchdog_pid(tmp_path / "boards"))
        yield process
        process.kill()
    assert soon(lambda: not watchdog_pid(tmp_path / "boards"))


def ended(process: subprocess.Popen[str]) -> str:
    """Let the rank end. Returns what it and its watchdogs said."""
    _, said = process.communicate("\n", timeout=100)
    return said


def test_told_to_end_it_leaves_living_ranks_their_boards(rank: subprocess.Popen[str], tmp_path: Path) -> None:
    boards = tmp_path / "boards"
    os.kill(watchdog_pid(boards), signal.SIGTERM)
    assert soon(lambda: not watchdog_pid(boards))
    time.sleep(EVERY_S + 1)
    assert not watchdog_pid(boards)  # it was no accident: none is started again
    assert len(list(boards.glob("*/rank-*.board"))) == 1
    assert "told to end: the job is no longer watched" in ended(rank)


def test_killed_it_is_started_again_and_that_is_said(rank: subprocess.Popen[str], tmp_path: Path) -> None:
    boards = tmp_path / "boards"
    first = watchdog_pid(boards)
    os.kill(first, signal.SIGKILL)
    assert soon(lambda: watchdog_pid(boards) not in (0, first))
    assert "rank 0 has started another one" in ended(rank)
    assert soon(lambda: list(boards.glob("*")) == [])  # the second one tidied up


def test_the_next_watchdog_sweeps_what_a_killed_job_has_left(left_behind: Path, rank: subprocess.Popen[str]) -> None:
    """Jobs that only attach: no `hangwatch run` ever comes by."""
    assert soon(lambda: not left_behind.exists())
    assert len(list(left_behind.parent.glob("*/rank-*.board"))) == 1
    ended(rank)


class Starts:
    """A launcher of watchdogs that all die at once."""

    def __init__(self, fails: bool = False) -> None:
        self.count, self.fails = 0, fails

    def __call__(self, folder: Path, settings: Settings) -> bool:
        self.count += 1
        if self.fails:
            raise OSError("no processes left")
        return True


@pytest.mark.parametrize(("fails", "starts"), [(False, MOST_STARTS), (True, 1)])
def test_one_that_cannot_live_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool, starts: int
) -> None:
    begin, now = Starts(fails), [0.0]
    said: list[str] = []
    monkeypatch.setattr(start, "ensure_watchdog", begin)
    keeper = Keeper(tmp_path, Settings(), say=said.append, clock=lambda: now[0])
    for second in range(100):
        now[0] = float(second)
        keeper.look()
    assert begin.count == len(said) == starts
