"""What a killed process ran still counts as covered."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from coverage import CoverageData
from coverage.exceptions import CoverageException

ROOT = Path(__file__).parents[2]
SCRIPT = """\
import threading

print("ready", flush=True)
threading.Event().wait()
"""
HANGS_AT = 4
FORKS = """\
import os
import signal
import threading
import time

from coverage import Coverage

measured = Coverage.current()
while "save" not in vars(measured):  # nothing was saved yet
    time.sleep(1)


def save():
    while True:
        measured.save()
        time.sleep(0.001)


threading.Thread(target=save, daemon=True).start()
for _ in range(20):
    if (child := os.fork()) == 0:
        signal.alarm(20)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
CONFIGURATION = """\
[run]
parallel = true
plugins = tests.save_coverage
patch = _exit, fork
"""


def lines_saved(folder: Path, script: Path, limit_s: float) -> list[int]:
    """The lines of `script` in the data file below `folder`, as soon as it was saved while the script hung."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        for path in folder.glob(".coverage.*"):
            with suppress(CoverageException):  # not yet written whole
                data = CoverageData(str(path))
                data.read()
                lines = sorted(data.lines(str(script)) or [])
                if lines and lines[-1] == HANGS_AT:  # a start that takes seconds stands still too
                    return lines
        time.sleep(0.1)
    raise TimeoutError(f"nothing saved within {limit_s} s")


def measured(folder: Path, text: str) -> subprocess.Popen[str]:
    """A script that runs under coverage, with its data below `folder`."""
    script = folder / "script.py"
    script.write_text(text)
    (folder / "coveragerc").write_text(CONFIGURATION)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    command = [sys.executable, "-m", "coverage", "run", "--rcfile=coveragerc", str(script)]
    return subprocess.Popen(
        command, cwd=folder, env=environment | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    )


def test_a_process_that_hangs_and_is_killed_counts(tmp_path: Path) -> None:
    # GIVEN a measured script that hangs
    with measured(tmp_path, SCRIPT) as hanging:
        assert hanging.stdout is not None
        assert hanging.stdout.readline() == "ready\n"
        # WHEN it has stood still for a while
        lines = lines_saved(tmp_path, tmp_path / "script.py", limit_s=200)
        # THEN all its lines count, though it is killed
        hanging.kill()
    assert lines == [1, 3, HANGS_AT]


def test_a_fork_amid_a_save_ends(tmp_path: Path) -> None:
    """The child has no thread that would end that save, and saves at its own end."""
    with measured(tmp_path, FORKS) as forking:
        try:
            said, _ = forking.communicate(timeout=250)
        finally:
            forking.kill()
    assert said.split() == ["0"] * 20
