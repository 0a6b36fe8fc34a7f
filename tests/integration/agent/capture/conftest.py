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

import pytest

Script = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """Starts a Python script, waits until it has said `ready` and rests, and ends it after the test with its group.

    `prefix` is a program that becomes the interpreter, such as `setpriv`.
    """
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str, prefix: Sequence[str] = (), **options: Any) -> subprocess.Popen[str]:
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
            _comes_to_rest(process.pid)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _comes_to_rest(pid: int, patience_s: float = 1.0) -> None:
    """Wait until the process sleeps and has not moved for three looks: between `ready` and the next line it is nowhere.

    A script that computes for ever never rests: it is left to it after `patience_s` seconds.
    """
    deadline = time.monotonic() + patience_s
    before, calm = "", 0
    while calm < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
        now = "\n".join(
            line
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith(("State:", "Threads:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"))
        )
        calm = calm + 1 if now == before and "State:\tR" not in now else 0
        before = now
