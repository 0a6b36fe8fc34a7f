"""A line of hangwatch's own on standard error, which may be closed, full, or at a terminal that is gone."""

from __future__ import annotations

import contextlib
import sys


def say(line: str) -> None:
    """Print `line` where that can be done. Python has no `sys.stderr` where that was closed before its start."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
