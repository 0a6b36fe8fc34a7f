"""The stacks of a rank's threads, by thread."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from hangwatch.model import Frame, ProcessFacts, ThreadStack
from hangwatch.ranks.processes import IDLE_CPU_S
from hangwatch.stacks.activity import Activity, Doing
from hangwatch.stacks.frames import name_of, origin

_JOINS = frozenset({"join", "_wait_for_tstate_lock", "result"})
_EXECUTOR = "/concurrent/futures/thread.py"


def stack_of(stacks: Iterable[ThreadStack], thread: Activity) -> ThreadStack | None:
    if thread.main:
        return next((stack for stack in stacks if stack.main), None)
    return next((stack for stack in stacks if stack.thread_id == thread.thread_id), None)


def python_of(stack: ThreadStack) -> tuple[Frame, ...]:
    return tuple(frame for frame in stack.frames if not frame.native)


def is_ours(stack: ThreadStack) -> bool:
    """A thread of hangwatch's own."""
    return any(origin(frame.file) == "hangwatch" for frame in stack.frames)


def below_the_user(frames: Iterable[Frame]) -> Iterable[Frame]:
    """The frames of what the user's innermost line called; all of them where no line is the user's."""
    return takewhile(lambda frame: frame.native or origin(frame.file) != "user", frames)


def awaits_a_thread(stack: ThreadStack) -> bool:
    """The user's innermost line is in the join of another thread, or in the result of its future."""
    return any(name_of(frame.function) in _JOINS for frame in below_the_user(stack.frames))


def waits_for_a_lock(thread: Activity, process: ProcessFacts | None) -> bool:
    """At a line of the program the main thread sleeps, without a timeout, for what its own process alone can give."""
    asleep = process is not None and process.private_wait and (process.cpu_delta_s or 0.0) <= IDLE_CPU_S
    return asleep and thread.doing is Doing.CODE


def waits_for_a_task(stack: ThreadStack) -> bool:
    """A thread of an executor that has nothing to do: it acts again only when another thread gives it a task."""
    inner = next(iter(python_of(stack)), None)
    return inner is not None and inner.file.endswith(_EXECUTOR) and name_of(inner.function) == "_worker"


def runs_users_code(stack: ThreadStack) -> bool:
    return any(origin(frame.file) == "user" for frame in stack.frames if not frame.native)
