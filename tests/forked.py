"""What a test runs in a forked child of its own process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable


def in_a_fork(body: Callable[[], object], limit_s: float = 60.0) -> int:
    """The exit code of a forked child that runs `body`: 0, or 1 where that raises. A child that hangs is killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            body()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + limit_s
    while (found := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise TimeoutError(f"the forked child {child} did not end within {limit_s} s")
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(found[1])
