"""`lock-held-by-process`: a lock of multiprocessing, of which the kernel does not say which process holds it."""

from __future__ import annotations

from typing import Any

import pytest

from hangwatch.model import Excerpt, Frame, ProcessEvidence, RankEvidence
from tests.unit.job import C10D, LIB, SCRIPT, blamed, judge, process, rank, told

SOURCE = (
    "for step in range(9):",  # 8
    "    with lock:",  # 9
    "        write(step)",  # 10
    "",
    "        dist.barrier()",  # 12
    "    dist.barrier()",  # 13
)
TEXT = Excerpt(SCRIPT, 9, 8, SOURCE)
ENTER = Frame(f"{LIB}/multiprocessing/synchronize.py", 95, "__enter__")
WITH = (ENTER, Frame(SCRIPT, 9, "run"))


def waits(number: int, frames: tuple[Frame, ...] = WITH, **facts: Any) -> RankEvidence:
    return rank(number, frames, issued=4, completed=4, patience_s=10.0, facts=facts)


def in_barrier(number: int, line: int) -> RankEvidence:
    return rank(number, (Frame(C10D, 5356, "barrier"), Frame(SCRIPT, line, "run")), issued=5, completed=4)


def test_a_collective_in_the_block_of_the_lock() -> None:
    judgement = judge(waits(0), in_barrier(1, 12), waits(2), excerpts=(TEXT,))
    assert told(judgement) == ("lock-held-by-process", "likely", "hung")
    assert [culprit for culprit, _, _ in blamed(judgement)] == [1]
    assert "within the block of the lock at train.py:9" in judgement.verdict.summary


@pytest.mark.parametrize(
    ("line", "excerpts"),
    [pytest.param(13, (TEXT,), id="behind the block"), pytest.param(12, (), id="no source")],
)
def test_a_rank_that_is_not_seen_in_the_block_is_no_holder(line: int, excerpts: tuple[Excerpt, ...]) -> None:
    judgement = judge(waits(0), in_barrier(1, line), waits(2), excerpts=excerpts)
    assert told(judgement)[:2] == ("lock-held-by-process", "likely")
    assert blamed(judgement) == []
    assert "a rank took it and did not release it" in judgement.verdict.summary


def test_one_rank_that_waits_alone_may_wait_for_any_process() -> None:
    assert told(judge(waits(0), in_barrier(1, 13), excerpts=(TEXT,)))[0] == "user-code-blocked"


def test_a_child_may_be_the_process_that_gives_it() -> None:
    feeder = ProcessEvidence("child", process(77), rank=0)
    first = rank(0, WITH, issued=4, completed=4, patience_s=10.0, evidence={"children": (feeder,)})
    assert told(judge(first, in_barrier(1, 13), waits(2), excerpts=(TEXT,)))[0] != "lock-held-by-process"


def test_all_ranks_wait_for_a_lock_that_was_not_released() -> None:
    judgement = judge(waits(0), waits(1), excerpts=(TEXT,))
    assert told(judgement) == ("lock-held-by-process", "likely", "hung")
    assert blamed(judgement) == []
    assert "no rank runs that could release it" in judgement.verdict.summary


def test_acquire_has_no_frame_but_its_line_says_so() -> None:
    line = Excerpt(SCRIPT, 4, 4, ("    lock.acquire()",))
    here = (Frame(SCRIPT, 4, "write_log"), Frame(SCRIPT, 21, "run"))
    assert told(judge(waits(0, here), waits(1, here), excerpts=(line,)))[0] == "lock-held-by-process"
    assert told(judge(waits(0, here), waits(1, here)))[0] == "undetermined"


def test_a_lock_of_its_own_process_is_none_between_processes() -> None:
    own = [waits(number, private_wait=True) for number in (0, 1)]
    assert told(judge(*own, excerpts=(TEXT,)))[0] != "lock-held-by-process"


def test_a_rank_that_works_in_the_block_may_release_it() -> None:
    works = rank(1, (Frame(SCRIPT, 10, "run"),), issued=4, completed=4, facts={"cpu_delta_s": 0.9})
    assert told(judge(waits(0), works, waits(2), excerpts=(TEXT,)))[2] == "waiting"
