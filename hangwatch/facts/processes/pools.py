"""A pool of threads whose tasks wait for tasks: where all of its threads do, no thread is left to run these."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from hangwatch import words
from hangwatch.facts.processes.child import HELPER
from hangwatch.facts.processes.tasks import tasks_told
from hangwatch.model import Frame, ThreadStack
from hangwatch.ranks.thread_stacks import is_ours
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.frames import name_of, origin, user_frame

_POOL = "/concurrent/futures/thread.py"
_FUTURES = ("/concurrent/futures/_base.py", "/concurrent/futures/__init__.py")
_OF_A_THREAD = re.compile(r"_\d+$")  # what a pool puts behind its name


@dataclass(frozen=True)
class TakenPool:
    """All `count` threads of a pool wait for results of tasks, at `where`."""

    name: str
    count: int
    where: Frame | None

    @property
    def told(self) -> str:
        threads = f"all {self.count} threads" if self.count > 1 else "the one thread"
        return (
            f"{threads} of its pool {self.name!r} {words.verb(self.count, 'waits', 'wait')} for results of tasks"
            f"{words.at(self.where)}, and none is left to run these"
        )


def taken_pool(view: RankView) -> TakenPool | None:
    """The pool all of whose threads wait for tasks, where the rank's main thread waits for a result as well.

    None where another thread or process of the rank may give what they wait for.
    """
    if not waits_for_a_result(view):
        return None
    pools: dict[str, list[ThreadStack]] = {}
    for stack in view.evidence.stacks:
        if any(frame.file.endswith(_POOL) for frame in stack.frames):
            pools.setdefault(_OF_A_THREAD.sub("", stack.name), []).append(stack)
        elif not (stack.main or is_ours(stack)):
            return None  # an event loop, a pool of processes: what they wait for may come from there
    if any(child.facts.state not in ("X", "Z") for child in view.evidence.children if child.role != HELPER):
        return None
    taken = [(name, threads) for name, threads in pools.items() if all(map(_waits_for_a_result, threads))]
    if len(taken) != 1:
        return None
    ((name, threads),) = taken
    return TakenPool(name, len(threads), user_frame(threads[0].frames))


def waits_for_a_result(view: RankView) -> bool:
    """Its main thread waits for the result of a future, which another thread or process has to give."""
    return any(_waits_for_a_result(stack) for stack in view.evidence.stacks if stack.main)


def idle_event_loop(view: RankView) -> str:
    """The thread of the rank's only event loop, if that waits for events; "" for none."""
    loops = [thread.thread for thread in view.threads if thread.doing is Doing.EVENTS and not thread.main]
    return loops[0] if len(loops) == 1 else ""


def result_awaited(view: RankView) -> str:
    """What the main thread waits for in a future; "" where it is in none."""
    if (pool := taken_pool(view)) is not None:
        return f"it waits for a result, and {pool.told}"
    if not waits_for_a_result(view):
        return ""
    thread = idle_event_loop(view)
    tasks = f", and {told}" if thread and (told := tasks_told(view)) else ""
    loop = f": the event loop of thread {thread!r}, which may run its task, waits for events{tasks}" if thread else ""
    return f"it waits for the result of a future{loop}"


def _waits_for_a_result(stack: ThreadStack) -> bool:
    """It is in a future's `result` or the like, called from the program's code."""
    python = (frame for frame in stack.frames if not frame.native)
    inner = takewhile(lambda frame: origin(frame.file) != "user", python)
    return any(
        frame.file.endswith(_FUTURES) and name_of(frame.function) in ("result", "wait", "exception") for frame in inner
    )
