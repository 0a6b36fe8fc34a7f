"""`hangwatch run` in front of a command must not be felt: codes, signals, streams, and the end itself."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = [sys.executable, "-m", "hangwatch", "run", "--"]

COUNTER = """
import signal, sys, time
got = []
signal.signal({number}, lambda *_: got.append(1))
print('ready', flush=True)
deadline = time.time() + 100
while not got and time.time() < deadline:
    time.sleep(0.05)
time.sleep(0.5)
sys.exit(40 + len(got))
"""


def run(folder: Path, *command: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*RUN, *command], cwd=folder, capture_output=True, text=True, timeout=200, **options
    )


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_commands(tmp_path: Path, code: int) -> None:
    done = run(tmp_path, "sh", "-c", f"exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_healthy_command_leaves_no_files(tmp_path: Path) -> None:
    run(tmp_path, *python("print('done')"))
    assert list(tmp_path.iterdir()) == []


def test_streams_are_the_commands_own(tmp_path: Path) -> None:
    done = run(tmp_path, "sh", "-c", "cat; echo problem >&2", input="hello\n")
    assert (done.stdout, done.stderr) == ("hello\n", "problem\n")


def test_death_by_a_signal_is_death_by_that_signal(tmp_path: Path) -> None:
    assert run(tmp_path, "sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_to_us_alone_reach_the_command_once(tmp_path: Path, number: signal.Signals) -> None:
    code = COUNTER.format(number=int(number))
    with subprocess.Popen([*RUN, *python(code)], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(200) == 41


def test_being_stopped_for_a_while_is_no_signal_to_the_command(tmp_path: Path) -> None:
    """GIVEN a command that has had a signal WHEN we are stopped and go on (Ctrl-Z, fg) THEN it hears of nothing."""
    code = COUNTER.format(number=int(signal.SIGUSR1)).replace("while not got", "while len(got) < 2")
    with subprocess.Popen([*RUN, *python(code)], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        for _ in range(2):
            time.sleep(0.3)
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            process.send_signal(signal.SIGCONT)
        time.sleep(1.5)
        assert process.poll() is None
        process.send_signal(signal.SIGUSR1)
        assert process.wait(200) == 42


def test_ctrl_c_in_a_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    code = COUNTER.format(number=int(signal.SIGINT))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [*RUN, *python(code)])
    assert b"ready" in os.read(terminal, 100)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 41
    os.close(terminal)


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, "no-such-command-at-all")
    assert done.returncode == 2
    assert "cannot run no-such-command-at-all" in done.stderr
    assert "PATH" in done.stderr


def test_nothing_to_run(tmp_path: Path) -> None:
    done = subprocess.run(RUN, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    assert "nothing to run" in done.stderr


def test_an_orphan_that_lives_on_does_not_keep_us(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run(tmp_path, "sh", "-c", "sleep 200 >/dev/null 2>&1 & echo $!")
    orphan = int(done.stdout)
    try:
        assert done.returncode == 0
        assert time.monotonic() - started < 150
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_the_command_is_not_deaf(tmp_path: Path) -> None:
    """The signals that we block for ourselves are not blocked in the command."""
    done = run(tmp_path, *python("import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"))
    assert done.stdout == "[]\n"


def test_no_board_folder_can_be_had(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {**os.environ, "HANGWATCH_RUN_DIR": str(tmp_path / "file")}
    done = run(tmp_path, *python("print('trains')"), env=environment)
    assert "trains" in done.stdout
    assert "HANGWATCH_RUN_DIR" in done.stderr
    assert done.returncode == 0
