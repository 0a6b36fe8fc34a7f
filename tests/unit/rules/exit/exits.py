"""What ranks stand in when their training is over."""

from __future__ import annotations

from hangwatch.model import ThreadStack
from tests.unit.job import (
    IN_BACKWARD,
    LIB,
    frames,
    gone,
    rank,
)

OUTPUT = "pipe:[7]"
DONE = gone(0)


def thread(name: str, *inner: tuple[str, int, str]) -> ThreadStack:
    return ThreadStack(7, name, frames(*inner, (f"{LIB}/threading.py", 982, "run"), below=()))


WAITS = rank(0, IN_BACKWARD, issued=11, completed=10)
