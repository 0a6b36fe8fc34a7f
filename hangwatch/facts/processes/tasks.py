"""The tasks of a rank's event loop, which no stack of a thread shows: where each waits, and in what of asyncio's."""

from __future__ import annotations

from hangwatch import words
from hangwatch.model import Frame, WaitingTask
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import origin, user_frame

_ASYNCIO = "/asyncio/"
_GIVEN_BACK = frozenset({"Semaphore.acquire", "BoundedSemaphore.acquire", "Lock.acquire", "acquire"})


def waiting_tasks(view: RankView) -> tuple[WaitingTask, ...]:
    """Those that wait in code of the program's, first those of which it is known for what they do."""
    own = (each for each in view.evidence.collectives.tasks if _where(each) is not None)
    return tuple(sorted(own, key=lambda each: (not _awaits(each), -each.count)))


def tasks_told(view: RankView) -> str:
    """`of its 4 tasks 3 wait in fetch (loader.py:31), in Semaphore.acquire`; "" for none.

    Those that wait for others, as the main one does for what it gathers, are left out where some do not.
    """
    tasks = waiting_tasks(view)
    if not tasks:
        return ""
    count = sum(each.count for each in tasks)
    if count == 1:
        return f"its one task waits {_told(tasks[0])}"
    first = [each for each in tasks if _awaits(each)] or list(tasks)
    shown = [f"{each.count} {words.verb(each.count, 'waits', 'wait')} {_told(each)}" for each in first[: words.SHOWN]]
    return f"of its {count} tasks {words.listed(shown)}"


def task_evidence(view: RankView) -> list[str]:
    """One sentence for each place, with the coroutines that led to it."""
    return [
        f"{words.plural(each.count, 'task')} of rank {view.rank} {words.verb(each.count, 'waits', 'wait')}"
        f" {_told(each)}{_by_way_of(each)}"
        for each in waiting_tasks(view)[: words.SHOWN]
    ]


def never_given_back(view: RankView) -> bool:
    """A task waits for a lock or semaphore of asyncio's, which another one has, or has left without giving it back."""
    return any(_awaits(each) in _GIVEN_BACK for each in waiting_tasks(view))


def _told(task: WaitingTask) -> str:
    where, awaits = _where(task), _awaits(task)
    return f"in {where.function if where else '?'}{words.at(where)}{f', in {awaits}' if awaits else ''}"


def _by_way_of(task: WaitingTask) -> str:
    own = [frame for frame in task.frames if origin(frame.file) == "user"][1:]
    return f", called by {words.listed(words.place(frame) for frame in own[: words.SHOWN])}" if own else ""


def _where(task: WaitingTask) -> Frame | None:
    """The innermost line of the user's."""
    found = user_frame(task.frames)
    return found if found is not None and origin(found.file) == "user" else None


def _awaits(task: WaitingTask) -> str:
    """`Semaphore.acquire`: the function of asyncio's in which it waits; "" where that is none that has a name."""
    for frame in task.frames:
        if origin(frame.file) == "user":
            return ""
        if _ASYNCIO in frame.file and not frame.function.rpartition(".")[2].startswith("_"):
            return frame.function
    return ""
