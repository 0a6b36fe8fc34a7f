"""A watchdog that the kernel really refuses: code run without CAP_SYS_PTRACE, or as nobody."""

from __future__ import annotations

import os
import subprocess
import sys

from tests import needs

WITHOUT_PTRACE = ("--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
AS_NOBODY = ("--reuid=65534", "--clear-groups", "--inh-caps=-all")


def run_refused(code: str, how: tuple[str, ...] = WITHOUT_PTRACE) -> str:
    """What Python code prints that runs with fewer rights. Skips the test where rights cannot be dropped."""
    needs.root()
    search = os.pathsep.join(path for path in sys.path if path)
    finished = subprocess.run(
        [needs.program("setpriv"), *how, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": search},
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
