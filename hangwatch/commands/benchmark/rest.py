"""What the watchdog needs while it watches ranks that rest: memory and processor time of its process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RANKS = 8
SETTLE = 4.0  # seconds until its start is over
OBSERVED = 15.0


def measure() -> tuple[float, float]:
    """MiB of the watchdog, and its percent of one core, over `OBSERVED` seconds."""
    with tempfile.TemporaryDirectory() as name, _ranks(Path(name)):
        pid = _watchdog(Path(name))
        time.sleep(SETTLE)
        before, began = _cpu(pid), time.monotonic()
        time.sleep(OBSERVED)
        return _resident(pid) / 2**20, (_cpu(pid) - before) / (time.monotonic() - began) * 100


@contextmanager
def _ranks(folder: Path) -> Iterator[None]:
    words = [sys.executable, "-m", "hangwatch.commands.benchmark.resting", str(folder)]
    ranks = [
        subprocess.Popen([*words, str(rank), str(RANKS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for rank in range(RANKS)
    ]
    try:
        for each in ranks:
            assert each.stdout is not None
            each.stdout.readline()
        yield
    finally:
        for each in ranks:
            each.communicate()
        _wait_for_end(folder)


def _watchdog(folder: Path) -> int:
    """The pid of the watchdog that `hangwatch.attach` would start."""
    from hangwatch.settings import Settings
    from hangwatch_agent.board import directory
    from hangwatch_agent.watchdog import start

    start.ensure_watchdog(folder, Settings(report_dir=str(folder)))
    pid, deadline = folder / directory.WATCHDOG_PID, time.monotonic() + 20
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return int(pid.read_text())


def _wait_for_end(folder: Path, seconds: float = 10.0) -> None:
    """The watchdog deletes the folder when its ranks have gone."""
    deadline = time.monotonic() + seconds
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    folder.mkdir(exist_ok=True)  # so that it can be deleted


def _cpu(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
