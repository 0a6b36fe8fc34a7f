"""What coverage need not measure twice."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Takes the tracer from this thread for a while. Threads that are started meanwhile are measured."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
