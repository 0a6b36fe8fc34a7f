"""The lock file that the main thread polls in torch's file baton, or in the filelock package.

The baton has its path in an object, which no tracer shows; that of filelock is a variable, for machines without tracer.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

BATON = os.path.join("torch", "utils", "file_baton.py")  # noqa: PTH118
FILELOCK = f"{os.sep}filelock{os.sep}"
_NAMED = "lock_filename"  # the variable of the function that tries again and again


def polled_path(frame: FrameType | None) -> str:
    """The path of the lock file that a thread waits for in `FileBaton.wait` or in filelock; "" where it does not."""
    while frame is not None:
        code, path = frame.f_code, None
        if code.co_name == "wait" and code.co_filename.endswith(BATON):
            baton: Any = frame.f_locals.get("self")
            path = getattr(baton, "lock_file_path", "")
        elif _NAMED in code.co_varnames and FILELOCK in code.co_filename:
            path = frame.f_locals.get(_NAMED)
        if path is not None:
            return os.path.abspath(path) if isinstance(path, str) and path else ""  # noqa: PTH100
        frame = frame.f_back
    return ""


class PolledLock:
    """Leaves `lock-PID.txt` beside the board for as long as the main thread polls a lock file. For captures."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / f"lock-{os.getpid()}.txt"

    def look(self) -> None:
        """Raises OSError where the file cannot be written."""
        path = polled_path(sys._current_frames().get(threading.main_thread().ident or 0))
        if path:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(self._file, flags, 0o600), "w") as file:
                file.write(path)
        else:
            with contextlib.suppress(FileNotFoundError):
                self._file.unlink()
