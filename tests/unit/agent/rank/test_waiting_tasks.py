"""Where the tasks of a sleeping event loop wait, read from another thread."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hangwatch.model import WaitingTask
from hangwatch_agent.rank.waiting_tasks import waiting_tasks

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="asyncio keeps its tasks out of reach there")


class OwnTask(asyncio.Task[None]):
    """A task of the program's own class, none of whose methods may be run for us."""

    asked = 0

    def done(self) -> bool:
        type(self).asked += threading.current_thread() is threading.main_thread()
        return super().done()


async def fetch(limit: asyncio.Semaphore) -> None:
    await limit.acquire()


async def by_block(limit: asyncio.Lock) -> None:
    async with limit:
        pass


async def take(queue: asyncio.Queue[int]) -> None:
    await queue.get()


async def all_of_them() -> None:
    lock = asyncio.Lock()
    await lock.acquire()
    limit = asyncio.Semaphore(0)
    await asyncio.gather(fetch(limit), fetch(limit), by_block(lock), take(asyncio.Queue()))


async def own() -> None:
    loop = asyncio.get_running_loop()
    await OwnTask(fetch(asyncio.Semaphore(0)), loop=loop)


@contextmanager
def sleeping(main: Coroutine[Any, Any, None]) -> Iterator[None]:
    """An event loop in a thread, which runs `main` and comes to rest."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(main)

    def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        time.sleep(0.2)
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


def places(found: tuple[WaitingTask, ...]) -> dict[tuple[str, ...], int]:
    return {tuple(frame.function for frame in each.frames): each.count for each in found}


def test_each_task_is_told_with_what_it_awaits() -> None:
    with sleeping(all_of_them()):
        assert places(waiting_tasks()) == {
            ("Semaphore.acquire", "fetch"): 2,
            ("Lock.acquire", "_ContextManagerMixin.__aenter__", "by_block"): 1,
            ("Queue.get", "take"): 1,
            ("all_of_them",): 1,
        }


def test_a_task_of_the_programs_own_class_is_not_asked() -> None:
    with sleeping(own()):
        OwnTask.asked = 0
        assert places(waiting_tasks()) == {("own",): 1}
        assert OwnTask.asked == 0


def test_without_asyncio_or_a_loop_that_sleeps_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waiting_tasks() == ()
    with sleeping(all_of_them()):
        monkeypatch.delitem(sys.modules, "asyncio.tasks")
        assert waiting_tasks() == ()
        assert "asyncio.tasks" not in sys.modules


def test_a_python_without_a_global_lock_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with sleeping(all_of_them()):
        assert waiting_tasks() == ()
