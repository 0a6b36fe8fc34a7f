"""`loader-fork-deadlock`: loader workers inherited a held lock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Excerpt
from tests.unit.job import FETCHING, LIB, SCRIPT, blamed, frames, judge, snapshot, told, worker
from tests.unit.rules.data.loaders import WAITING, fed


def forked(index: int, rank: int = 0, **facts: object) -> object:
    lone = {"private_wait": True, "deadlocked": True, "delivered": False, **facts}
    return worker(index, FETCHING, rank=rank, **lone)  # type: ignore[arg-type]


def test_all_workers_wait_for_a_lock_and_are_alone() -> None:
    judgement = judge(*(fed(number, forked(0, number), forked(1, number), still_s=3.0) for number in (0, 1)))
    assert told(judgement) == ("loader-fork-deadlock", "proven", "hung")
    assert blamed(judgement) == []
    assert "4 loader workers of all ranks wait for a lock" in judgement.verdict.summary


def test_threads_of_a_pool_that_all_wait_are_no_help() -> None:
    """An OpenMP pool may start its threads anew after the fork, and all of them wait at its barrier."""
    judgement = judge(fed(0, forked(0, threads=4)), WAITING)
    assert told(judgement) == ("loader-fork-deadlock", "proven", "hung")
    assert any("and its 3 other threads wait in the same way" in each for each in judgement.verdict.evidence)


def test_where_another_thread_does_something_it_is_only_likely() -> None:
    judgement = judge(fed(0, forked(0, threads=2, deadlocked=False)), WAITING)
    assert told(judgement) == ("loader-fork-deadlock", "likely", "hung")


def test_of_one_rank_its_workers_are_named() -> None:
    judgement = judge(fed(0, forked(0), forked(1)), WAITING)
    assert blamed(judgement) == [(0, 200, "loader-worker"), (0, 201, "loader-worker")]


def test_a_lock_of_the_program_is_told_by_its_line_and_mended_there() -> None:
    evidence = snapshot(fed(0, forked(0)), WAITING)
    line = Excerpt(SCRIPT, 12, 12, ("    with self.lock:",))
    verdict = diagnose(replace(evidence, excerpts=(line,))).verdict
    assert "waits for a lock that its parent held at the fork, and no thread of it can release it" in verdict.summary
    assert "worker_init_fn" in verdict.fix
    assert "a lock or a thread pool" in diagnose(evidence).verdict.summary


def test_a_pool_from_before_the_fork() -> None:
    pool = frames((f"{LIB}/threading.py", 327, "wait"), (f"{LIB}/multiprocessing/pool.py", 768, "wait"), below=FETCHING)
    judgement = judge(fed(0, worker(0, pool, delivered=False, private_wait=True, deadlocked=True)), WAITING)
    assert told(judgement) == ("loader-fork-deadlock", "proven", "hung")


def test_without_the_system_call_it_is_only_likely() -> None:
    lock = frames((f"{LIB}/threading.py", 327, "wait"), below=FETCHING)
    judgement = judge(fed(0, worker(0, lock, delivered=False, system_call=None)), WAITING)
    assert told(judgement) == ("loader-fork-deadlock", "likely", "hung")


@pytest.mark.parametrize(
    "facts",
    [
        {"delivered": True},  # it has got through before
        {"private_wait": False, "system_call": "read"},
        {"command": "python -c from multiprocessing.spawn import spawn_main"},  # not forked
        {"cpu_delta_s": 0.8},
    ],
)
def test_other_blocked_workers_are_no_fork_deadlock(facts: dict[str, Any]) -> None:
    judgement = judge(fed(0, forked(0, 0, **facts)), WAITING)
    assert judgement.verdict.cause == "loader-worker-blocked"


def test_a_lock_between_processes_is_none_either() -> None:
    shared = frames((f"{LIB}/multiprocessing/synchronize.py", 95, "__enter__"), below=FETCHING)
    judgement = judge(fed(0, worker(0, shared, delivered=False)), WAITING)
    assert judgement.verdict.cause == "loader-worker-blocked"
