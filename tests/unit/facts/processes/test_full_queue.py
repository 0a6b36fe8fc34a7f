"""Ranks that wait for room in a queue which their parent would read, and which waits for them to end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import Excerpt, Frame, Judgement, ProcessEvidence, RankEvidence, ThreadStack
from tests.unit.job import IN_BACKWARD, LIB, SCRIPT, judge, launcher, other, rank, told

QUEUES = f"{LIB}/multiprocessing/queues.py"
SPAWN = "/home/ann/venv/lib/python3.12/site-packages/torch/multiprocessing/spawn.py"
PUT = Frame(SCRIPT, 13, "worker"), Frame(SCRIPT, 90, "<module>")
IN_PUT = (Frame(QUEUES, 89, "put"), *PUT)
IN_JOIN = (
    Frame(f"{LIB}/selectors.py", 415, "select"), Frame(f"{LIB}/multiprocessing/connection.py", 947, "wait"),
    Frame(SPAWN, 140, "join"), Frame(SCRIPT, 23, "main"), Frame(SCRIPT, 90, "<module>"),
)  # fmt: skip
LINES = (
    Excerpt(SCRIPT, 13, 13, ("        results.put(row)",)),
    Excerpt(SCRIPT, 23, 22, ("    results = context.Queue(maxsize=16)", "    mp.spawn(worker, nprocs=2)")),
)
PARENT = launcher(IN_JOIN)
READS = ThreadStack(7, "reader", (Frame(f"{LIB}/queue.py", 171, "get"), Frame(SCRIPT, 30, "read")))


def putting(number: int, stack: tuple[Frame, ...] = IN_PUT) -> RankEvidence:
    return rank(number, stack, issued=3, completed=3, facts={"system_call": "futex", "parent": PARENT.facts.pid})


def judged(*ranks: RankEvidence, parent: ProcessEvidence = PARENT, **parts: object) -> Judgement:
    return judge(*(ranks or (putting(0), putting(1))), launchers=(parent,), excerpts=LINES, **parts)


def test_the_parent_in_join_is_named_and_the_size_of_the_queue() -> None:
    judgement = judged()
    assert told(judgement)[0] == "user-code-blocked"
    assert judgement.verdict.summary == (
        "All ranks are stuck in worker (train.py:13): each waits in put: the queue is full (maxsize 16), and the one"
        " process left that could read it, the parent 50, waits in join (train.py:23) for the ranks to end."
    )
    assert "before it joins" in judgement.verdict.fix


def test_a_rank_that_waits_for_these_reads_nothing_either() -> None:
    summary = judged(rank(0, IN_BACKWARD, issued=4, completed=3), putting(1)).verdict.summary
    assert "it waits in put: the queue is full (maxsize 16), and the one process left" in summary


def test_without_a_line_that_shows_it_the_size_is_not_told() -> None:
    summary = judge(putting(0), putting(1), launchers=(PARENT,), excerpts=LINES[:1]).verdict.summary
    assert "the queue is full, and the one process left" in summary


@pytest.mark.parametrize(
    ("parent", "others"),
    [
        (launcher(IN_PUT), ()),
        (launcher(IN_JOIN, pid=51), ()),
        (replace(PARENT, stacks=(*PARENT.stacks, READS)), ()),
        (PARENT, (other(60, "job"),)),
    ],
    ids=["not in join", "not their parent", "a thread of it reads", "another process"],
)
def test_where_another_may_read_the_queue_is_only_full(
    parent: ProcessEvidence, others: tuple[ProcessEvidence, ...]
) -> None:
    verdict = judged(parent=parent, others=others).verdict
    assert "each waits in put, for room in a full queue." in verdict.summary
    assert "see why the reader of that queue takes no more" in verdict.fix


def test_a_rank_that_waits_for_none_of_these_may_read() -> None:
    summary = judged(putting(0), rank(1, (Frame(QUEUES, 103, "get"), Frame(SCRIPT, 30, "read")))).verdict.summary
    assert "process left" not in summary


def test_a_queue_of_threads_may_be_full_as_well() -> None:
    stack = (Frame(f"{LIB}/threading.py", 327, "wait"), Frame(f"{LIB}/queue.py", 140, "put"), *PUT)
    verdict = judged(putting(0, stack), putting(1, stack)).verdict
    assert "each waits in put, for room in a full queue." in verdict.summary
    in_get = (Frame(f"{LIB}/threading.py", 327, "wait"), Frame(f"{LIB}/queue.py", 171, "get"), *PUT)
    assert "a lock or a queue" in judged(putting(0, in_get), putting(1, in_get)).verdict.summary


def test_its_lock_says_nothing_of_room() -> None:
    """The thread that sends what was put holds it for a moment."""
    stack = (Frame(f"{LIB}/threading.py", 300, "__enter__"), *IN_PUT)
    assert "a lock or a queue" in judged(putting(0, stack), putting(1, stack)).verdict.summary
