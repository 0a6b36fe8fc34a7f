"""`loader-worker-frozen`: a loader worker is frozen."""

from __future__ import annotations

from hangwatch.model import OpenFile
from tests.unit.job import FETCHING, IDLE, IN_CODE, IN_RESOURCE_SHARER, blamed, judge, rank, told, worker
from tests.unit.rules.data.loaders import WAITING, fed


def test_a_stopped_worker_although_the_main_thread_seems_stuck_in_a_socket() -> None:
    judgement = judge(fed(0, worker(0, FETCHING, state="T"), worker(1, IDLE), stack=IN_RESOURCE_SHARER), WAITING)
    assert told(judgement) == ("loader-worker-frozen", "proven", "hung")
    assert blamed(judgement) == [(0, 200, "loader-worker")]
    assert judgement.verdict.fix == "kill -CONT 200"


def test_a_worker_that_sleeps_uninterruptibly() -> None:
    deep = worker(0, FETCHING, state="D", wait_channel="nfs_wait", blocked_on=OpenFile(4, "/mnt/a", "nfs4"))
    judgement = judge(fed(0, deep), WAITING)
    assert told(judgement) == ("loader-worker-frozen", "likely", "hung")
    assert "state D, kernel function nfs_wait) on /mnt/a (nfs4)" in judgement.verdict.summary


def test_a_stopped_worker_of_a_rank_that_needs_no_batch() -> None:
    computing = rank(0, IN_CODE, evidence={"workers": (worker(0, FETCHING, state="T"),)}, issued=10, completed=10)
    assert judge(computing, WAITING).verdict.cause != "loader-worker-frozen"
