"""The tasks of an event loop that sleeps, and where each of them waits: no stack of a thread shows them.

Only read where a thread of this process stands in the loop's own wait, so no task runs meanwhile. asyncio is never
imported for it, and no code of the program's is run: only asyncio's own task class and Python's own coroutines are
asked, by exact type, for what the interpreter keeps of them. A subclass, or a task of another loop's make, is passed
over; so are all in a Python without a global lock.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from types import CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any
from weakref import WeakSet, ref

from hangwatch.model import Frame, WaitingTask

MOST_TASKS = 2000  # that are looked at
MOST_TOLD = 16  # different places
DEEPEST = 32  # coroutines that await one another
_LOOP = os.path.join("asyncio", "base_events.py")  # noqa: PTH118
_WAIT = f"{os.sep}selectors.py"


def waiting_tasks() -> tuple[WaitingTask, ...]:
    """Where the tasks of this process wait, the commonest places first; () where no event loop sleeps."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return ()
    if "asyncio.tasks" not in sys.modules or not any(map(_sleeps_in_loop, sys._current_frames().values())):
        return ()
    places = Counter(frames for task in _tasks() if (frames := _stands(task)))
    return tuple(WaitingTask(frames, count) for frames, count in places.most_common(MOST_TOLD))


def _sleeps_in_loop(frame: FrameType | None) -> bool:
    if frame is None or not frame.f_code.co_filename.endswith(_WAIT):
        return False
    while frame is not None:
        if frame.f_code.co_filename.endswith(_LOOP):
            return True
        frame = frame.f_back
    return False


def _tasks() -> Iterator[Any]:
    """Those that are not done. The set of weak references is copied in one go; up to Python 3.13 it holds them all."""
    kind = getattr(sys.modules.get("_asyncio"), "Task", None)
    known = vars(sys.modules["asyncio.tasks"])
    found = known.get("_scheduled_tasks", known.get("_all_tasks"))
    references = list(vars(found)["data"]) if type(found) is WeakSet else []
    for reference in references[:MOST_TASKS]:
        task = reference() if type(reference) is ref else None
        if task is not None and type(task) is kind and not task.done():
            yield task


def _stands(task: Any) -> tuple[Frame, ...]:
    """The frames of the coroutine that a task runs, and of those that it awaits, innermost first."""
    frames: list[Frame] = []
    waits: Any = task.get_coro()
    for _ in range(DEEPEST):
        if type(waits) is CoroutineType:
            frame, waits = waits.cr_frame, waits.cr_await
        elif type(waits) is GeneratorType:
            frame, waits = waits.gi_frame, waits.gi_yieldfrom
        else:
            break
        if frame is None:
            break
        frames.append(Frame(frame.f_code.co_filename, frame.f_lineno or 0, _name(frame.f_code)))
    return tuple(reversed(frames))


def _name(code: CodeType) -> str:
    """`Semaphore.acquire`; before Python 3.11 `acquire`."""
    whole: str = getattr(code, "co_qualname", code.co_name)
    return whole.rpartition("<locals>.")[2]
