"""Ends real processes: ranks, stopped ones, deaf ones, and what they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.shared.procfs import Table, stat_of
from hangwatch_agent.watchdog.abort import end_idle_command, end_job, end_ranks
from tests.unit.agent.readings import rank_state

OBEYS = "print(0, flush=True); import time; time.sleep(100)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {OBEYS}"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, start_new_session={session})
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(100)
"""

Start = Callable[..., tuple[subprocess.Popen[str], int]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a Python program; gives it with the number that it prints when it is ready."""
    running: list[subprocess.Popen[str]] = []
    printed: list[int] = []

    def begin(code: str, *arguments: str) -> tuple[subprocess.Popen[str], int]:
        command = [sys.executable, "-c", code, *arguments]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert running[-1].stdout is not None
        printed.append(int(running[-1].stdout.readline()))
        return running[-1], printed[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()
    for pid in filter(None, printed):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_there(pid: int) -> bool:
    found = stat_of(pid)
    return found is not None and found.state not in "XZ"


def gone_soon(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_there(pid)


def rank_of(process: subprocess.Popen[str], *, ticks: int | None = None) -> RankState:
    found = stat_of(process.pid)
    assert found is not None
    board = Path(f"rank-{process.pid}-{found.ticks if ticks is None else ticks}.board")
    return replace(rank_state(pid=process.pid), path=board)


def test_ranks_that_obey_are_not_killed(start: Start) -> None:
    ranks = [start(OBEYS)[0] for _ in range(2)]
    assert end_ranks([rank_of(each) for each in ranks], [], 20.0) == []
    assert [each.wait(20) for each in ranks] == [-signal.SIGTERM] * 2


def test_a_stopped_rank_is_continued_so_that_it_handles_the_signal(start: Start) -> None:
    rank, _ = start(OBEYS)
    rank.send_signal(signal.SIGSTOP)
    assert end_ranks([rank_of(rank)], [rank.pid], 20.0) == []
    assert rank.wait(20) == -signal.SIGTERM


def test_who_does_not_obey_is_killed_after_the_grace(start: Start) -> None:
    deaf, _ = start(DEAF)
    obeys, _ = start(OBEYS)
    assert end_ranks([rank_of(deaf), rank_of(obeys)], [], 0.5) == [deaf.pid]
    assert (deaf.wait(20), obeys.wait(20)) == (-signal.SIGKILL, -signal.SIGTERM)


@pytest.mark.parametrize("code", [OBEYS, DEAF])
def test_what_a_rank_has_started_goes_with_it(start: Start, code: str) -> None:
    rank, child = start(PARENT.format(session=False), code)
    killed = end_ranks([rank_of(rank)], [], 2.0)
    assert killed == ([child] if code == DEAF else [])
    assert rank.wait(20) == -signal.SIGTERM
    assert gone_soon(child)


def test_a_child_with_a_session_of_its_own_is_left_alone(start: Start) -> None:
    rank, child = start(PARENT.format(session=True), OBEYS)
    assert end_ranks([rank_of(rank)], [], 20.0) == []
    assert rank.wait(20) == -signal.SIGTERM
    assert is_there(child)


def test_a_stranger_that_was_given_the_pid_is_left_alone(start: Start) -> None:
    stranger, child = start(PARENT.format(session=False), OBEYS)
    assert end_ranks([rank_of(stranger, ticks=1)], [], 0.3) == []
    assert stranger.poll() is None
    assert is_there(child)


# -------------------------------------------------------------------------------------- the command that started them

WORKS = "print(0, flush=True)\nwhile True: pass"
RESTARTS = """
import subprocess, sys, time
print(0, flush=True)
time.sleep(0.5)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(5)"])
time.sleep(100)
"""


def test_a_command_that_waits_on_without_its_ranks_is_ended(start: Start) -> None:
    command, child = start(PARENT.format(session=False), OBEYS)
    assert end_idle_command(command.pid, 20.0, patience_s=3.0)
    assert command.wait(20) == -signal.SIGTERM
    assert gone_soon(child)


@pytest.mark.parametrize("code", [WORKS, RESTARTS])
def test_a_command_that_works_or_starts_something_is_left_alone(start: Start, code: str) -> None:
    command, _ = start(code)
    assert not end_idle_command(command.pid, 1.0, patience_s=5.0)
    assert command.poll() is None


def test_torchrun_is_left_alone(start: Start) -> None:
    command, _ = start(OBEYS, "torch.distributed.run")
    assert not end_idle_command(command.pid, 1.0, patience_s=1.0)
    assert command.poll() is None


def test_a_command_that_ends_by_itself_is_not_ended(start: Start) -> None:
    command, _ = start("print(0, flush=True)")
    assert not end_idle_command(command.pid, 1.0, patience_s=20.0)


# ------------------------------------------------------------------------------------------------- the job as a whole

LAUNCHER = """
import subprocess, sys
restarts = 0
while True:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[-1]], stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    if not restarts:
        print(child.pid, flush=True)
    child.wait()
    restarts += 1
"""


def rank_of_pid(pid: int) -> RankState:
    found = stat_of(pid)
    assert found is not None
    return replace(rank_state(pid=pid), path=Path(f"rank-{pid}-{found.ticks}.board"))


@pytest.mark.parametrize("code", [OBEYS, DEAF])
def test_a_launcher_that_restarts_its_ranks_is_ended_with_them(start: Start, code: str) -> None:
    launcher, rank = start(LAUNCHER, code)
    killed = end_job([rank_of_pid(rank)], [], 2.0, launcher.pid)
    assert killed == ([rank] if code == DEAF else [])
    assert launcher.wait(20) == -signal.SIGTERM
    assert gone_soon(rank)
    assert [each for each in Table.read().stats.values() if each.parent == launcher.pid] == []


def test_without_a_command_only_launchers_above_the_ranks_are_ended(start: Start) -> None:
    """The ranks attached by themselves: who started their launcher is nothing to us."""
    launcher, rank = start(LAUNCHER, "torch.distributed.run", OBEYS)
    end_job([rank_of_pid(rank)], [], 5.0, None)
    assert launcher.wait(20) == -signal.SIGTERM
    assert gone_soon(rank)
    assert is_there(os.getpid())
