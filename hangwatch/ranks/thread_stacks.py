"""The stacks of a rank's threads, by thread."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch.model import Frame, ThreadStack
from hangwatch.stacks.activity import Activity


def stack_of(stacks: Iterable[ThreadStack], thread: Activity) -> ThreadStack | None:
    if thread.main:
        return next((stack for stack in stacks if stack.main), None)
    return next((stack for stack in stacks if stack.thread_id == thread.thread_id), None)


def python_of(stack: ThreadStack) -> tuple[Frame, ...]:
    return tuple(frame for frame in stack.frames if not frame.native)
