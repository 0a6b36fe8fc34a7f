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
CONFIGURATION = """\
[run]
parallel = true
plugins = tests.save_coverage
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


def test_a_process_that_hangs_and_is_killed_counts(tmp_path: Path) -> None:
    # GIVEN a measured script that hangs
    script = tmp_path / "hangs.py"
    script.write_text(SCRIPT)
    (tmp_path / "coveragerc").write_text(CONFIGURATION)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    command = [sys.executable, "-m", "coverage", "run", "--rcfile=coveragerc", str(script)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    ) as hanging:
        assert hanging.stdout is not None
        assert hanging.stdout.readline() == "ready\n"
        # WHEN it has stood still for a while
        lines = lines_saved(tmp_path, script, limit_s=200)
        # THEN all its lines count, though it is killed
        hanging.kill()
    assert lines == [1, 3, HANGS_AT]
