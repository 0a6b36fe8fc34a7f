"""Real processes to look at: a Python script that says `ready` when it is where it should be."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from hangwatch_agent.capture.stacks import py_spy
from hangwatch_agent.shared import procfs

Script = Callable[..., "subprocess.Popen[str]"]
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _patience_with_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watchdog gives a process up after seconds; a busy test machine may need longer to start py-spy."""
    for function in (py_spy.dump, py_spy.dump_all, py_spy.dump_native):
        assert function.__kwdefaults__ is not None
        monkeypatch.setitem(function.__kwdefaults__, "timeout_s", PATIENCE_S)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """Starts a Python script, waits until it has said `ready` and come to rest; ends it after the test with its group.

    `prefix` is a program that becomes the interpreter, such as `setpriv`. Without `rests` it may go on as it
    likes: a script that computes or polls never rests.
    """
    started: list[subprocess.Popen[str]] = []

    def start(
        code: str, *arguments: str, prefix: Sequence[str] = (), rests: bool = True, **options: Any
    ) -> subprocess.Popen[str]:
        path = tmp_path / f"script{len(started)}.py"
        path.write_text(textwrap.dedent(code))
        options = {"stdout": subprocess.PIPE, "stdin": subprocess.DEVNULL, "start_new_session": True, **options}
        # Nothing of ours runs in it, and coverage would add a thread.
        environment = options.pop("env", os.environ)
        options["env"] = {name: value for name, value in environment.items() if not name.startswith("COVERAGE_")}
        process = subprocess.Popen([*prefix, sys.executable, str(path), *arguments], text=True, **options)
        started.append(process)
        if process.stdout is not None:
            assert process.stdout.readline().strip() == "ready"
            if rests:
                comes_to_rest(process.pid)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def comes_to_rest(pid: int, patience_s: float = PATIENCE_S) -> None:
    """Wait until it sleeps and has not moved for three looks: between `ready` and the next line it is nowhere."""
    deadline = time.monotonic() + patience_s
    before, calm = "", 0
    while calm < 3:
        assert time.monotonic() < deadline, f"process {pid} does not come to rest:\n{before}"
        time.sleep(0.01)
        now = "\n".join(
            line
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith(("State:", "Threads:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"))
        )
        calm = calm + 1 if now == before and "State:\tS" in now else 0
        before = now


def all_come_to_rest(pid: int) -> None:
    """The same for every process below it: loader workers reach the sample that hangs after their rank is waiting."""
    for process in psutil.Process(pid).children(recursive=True):
        comes_to_rest(process.pid)


def comes_to(pid: int, state: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until the process is in a state of /proc: a signal that was sent has not yet been taken."""
    deadline = time.monotonic() + patience_s
    while (stat := procfs.stat_of(pid)) is None or stat.state != state:
        assert time.monotonic() < deadline, f"process {pid} is in state {stat.state if stat else 'X'}, not {state}"
        time.sleep(0.01)


def stop(pid: int) -> None:
    """SIGSTOP, and wait until the process stands still."""
    os.kill(pid, signal.SIGSTOP)
    comes_to(pid, "T")
