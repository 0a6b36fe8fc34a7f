"""Tasks of an event loop, as a verdict tells them."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.model import Frame, Verdict, WaitingTask
from tests.unit.job import IN_BACKWARD, LIB, SCRIPT, judge, rank

LOCKS = f"{LIB}/asyncio/locks.py"
IN_LOOP = (
    Frame(f"{LIB}/selectors.py", 415, "select"), Frame(f"{LIB}/asyncio/base_events.py", 1878, "_run_once"),
    Frame(f"{LIB}/asyncio/runners.py", 190, "run"), Frame(SCRIPT, 41, "main"), Frame(SCRIPT, 90, "<module>"),
)  # fmt: skip
ACQUIRES = WaitingTask((Frame(LOCKS, 386, "Semaphore.acquire"), Frame(SCRIPT, 12, "Loader.fetch")), 2)
ENTERS = WaitingTask(
    (Frame(LOCKS, 112, "Lock.acquire"), Frame(LOCKS, 15, "_ContextManagerMixin.__aenter__"), Frame(SCRIPT, 14, "write"))
)
READS = WaitingTask((Frame(f"{LIB}/asyncio/streams.py", 526, "StreamReader._wait_for_data"), Frame(SCRIPT, 16, "read")))
GATHERS = WaitingTask((Frame(SCRIPT, 27, "batch"), Frame(SCRIPT, 34, "train")))
OF_A_PACKAGE = WaitingTask((Frame("/home/ann/venv/lib/python3.12/site-packages/aiohttp/client.py", 9, "request"),))


def judged(*tasks: WaitingTask) -> Verdict:
    stuck = rank(1, IN_LOOP, issued=3, completed=3)
    stuck = replace(stuck, collectives=replace(stuck.collectives, tasks=tasks))
    return judge(rank(0, IN_BACKWARD, issued=4, completed=3), stuck).verdict


def test_tasks_that_wait_for_what_another_gives_are_told_first() -> None:
    verdict = judged(GATHERS, ACQUIRES)
    assert "it waits for events, and of its 3 tasks 2 wait in Loader.fetch (train.py:12), in Semaphore.acquire;" in (
        verdict.summary
    )
    assert "2 tasks of rank 1 wait in Loader.fetch (train.py:12), in Semaphore.acquire" in verdict.evidence
    assert "1 task of rank 1 waits in batch (train.py:27), called by train.py:34" in verdict.evidence
    assert "see which `await` of that coroutine does not end" in verdict.fix


def test_the_function_with_a_name_is_told_and_not_its_helpers() -> None:
    assert "its one task waits in write (train.py:14), in Lock.acquire;" in judged(ENTERS).summary
    verdict = judged(READS)
    assert "its one task waits in read (train.py:16);" in verdict.summary
    assert "await with a timeout" in verdict.fix


def test_where_all_wait_for_others_all_are_told() -> None:
    summary = judged(GATHERS, READS).summary
    assert "of its 2 tasks 1 waits in batch (train.py:27) and 1 waits in read (train.py:16);" in summary


def test_tasks_of_packages_alone_say_nothing() -> None:
    assert "none of which wakes a task" in judged(OF_A_PACKAGE).summary
    assert "none of which wakes a task" in judged().summary


def test_the_loop_of_another_thread_may_run_them() -> None:
    waits = (Frame(f"{LIB}/threading.py", 327, "wait"), Frame(f"{LIB}/concurrent/futures/_base.py", 451, "result"))
    stuck = rank(1, (*waits, *IN_LOOP[3:]), issued=3, completed=3)
    loop = replace(stuck.stacks[0], thread_id=9, name="loop", frames=IN_LOOP[:3], main=False)
    stuck = replace(stuck, stacks=(*stuck.stacks, loop), collectives=replace(stuck.collectives, tasks=(ACQUIRES,)))
    summary = judge(rank(0, IN_BACKWARD, issued=4, completed=3), stuck).verdict.summary
    assert "the event loop of thread 'loop', which may run its task, waits for events, and of its 2 tasks" in summary
