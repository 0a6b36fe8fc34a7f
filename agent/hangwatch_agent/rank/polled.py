"""What the main thread polls, left beside the board for captures for as long as it does."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType


class Polled:
    """Keeps the path that `find` gives of the main thread's innermost frame in a file; removes it where that is ""."""

    def __init__(self, file: Path, find: Callable[[FrameType | None], str]) -> None:
        self._file, self._find = file, find

    def look(self) -> None:
        """Raises OSError where the file cannot be written."""
        path = self._find(sys._current_frames().get(threading.main_thread().ident or 0))
        if path:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(self._file, flags, 0o600), "w") as file:
                file.write(path)
        else:
            with contextlib.suppress(FileNotFoundError):
                self._file.unlink()
