"""The right to trace this rank, given to the watchdog where the kernel asks for it."""

from __future__ import annotations

import os
from pathlib import Path

PR_SET_PTRACER = 0x59616D61
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class PtracePermission:
    """Under Yama's scope 1 only ancestors may trace a process: the rank has to name its watchdog.

    `run` sets HANGWATCH_WATCHDOG_PID; after `attach` the watchdog leaves its pid in `watchdog.pid` when it has started.
    """

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / "watchdog.pid"
        self._named = 0
        try:
            self._needed = YAMA.read_text().strip() == "1"
        except OSError:
            self._needed = False

    def look(self) -> None:
        """Name the watchdog, once it is known. For the ticker."""
        if not self._needed:
            return
        pid = _number(os.environ.get("HANGWATCH_WATCHDOG_PID", "")) or self._written()
        if pid and pid != self._named:
            import ctypes

            ctypes.CDLL(None).prctl(PR_SET_PTRACER, pid, 0, 0, 0)
            self._named = pid

    def _written(self) -> int:
        try:
            return _number(self._file.read_text())
        except OSError:
            return 0


def _number(text: str) -> int:
    text = text.strip()
    return int(text) if text.isdigit() and len(text) < 10 else 0
