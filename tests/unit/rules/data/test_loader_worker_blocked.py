"""`loader-worker-blocked`: a loader worker is stuck in a sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.judge.patience import held
from hangwatch.model import OpenFile, ProcessEvidence, Stage, ThreadStack
from tests.unit.job import (
    _LOOP,
    FETCH,
    FETCHING,
    IDLE,
    SCRIPT,
    blamed,
    frames,
    judge,
    process,
    rank,
    snapshot,
    told,
    worker,
)
from tests.unit.rules.data.loaders import WAITING, fed


def test_one_worker_is_stuck_and_the_others_wait_for_work() -> None:
    stuck = worker(1, FETCHING, sample="17", system_call="clock_nanosleep")
    judgement = judge(fed(0, worker(0, IDLE), stuck), WAITING)
    assert told(judgement) == ("loader-worker-blocked", "likely", "hung")
    assert judgement.stage is Stage.DATA
    assert blamed(judgement) == [(0, 201, "loader-worker")]
    where = judgement.verdict.culprits[0].where
    assert where is not None
    assert (where.function, where.line) == ("__getitem__", 12)
    assert "is stuck in __getitem__ (train.py:12) on sample 17: it sleeps" in judgement.verdict.summary
    assert "and rank 1 waits for rank 0" in judgement.verdict.summary
    assert judgement.verdict.victims == (0, 1)


def test_patience_before_it() -> None:
    pauses = worker(0, FETCHING, system_call="clock_nanosleep", sleeps_s=12.0)
    judgement = judge(fed(0, pauses, still_s=8.0, patience_s=120.0), WAITING)
    assert told(judgement) == ("loader-worker-blocked", "likely", "waiting")
    assert "is still in __getitem__ (train.py:12): it sleeps, for another 12 s;" in judgement.verdict.summary


@pytest.mark.parametrize(
    "facts",
    [
        {"cpu_delta_s": 0.9},
        {"state": "R", "cpu_delta_s": 0.04, "system_call": ""},  # of a busy machine it gets little
        {"io_delta_bytes": 10 << 20},
    ],
)
def test_a_worker_that_works_is_waited_for(facts: dict[str, Any]) -> None:
    judgement = judge(fed(0, worker(0, FETCHING, **facts), worker(1, IDLE)), WAITING)
    assert told(judgement) == ("loader-worker-blocked", "likely", "waiting")
    assert "still works" in judgement.verdict.summary


@pytest.mark.parametrize(
    ("facts", "status"),
    [({"cpu_delta_s": 0.9}, "hung"), ({"cpu_delta_s": 0.9, "io_delta_bytes": 10 << 20}, "waiting")],
    ids=["it only computes", "it reads as well"],
)
def test_a_worker_that_only_computes_is_given_as_long_as_a_rank_that_does(facts: dict[str, Any], status: str) -> None:
    endless = worker(0, FETCHING, sample="17", **facts)
    waits = fed(0, endless, worker(1, IDLE), still_s=610.0, patience_s=120.0)
    judgement = judge(waits, WAITING)
    assert told(judgement) == ("loader-worker-blocked", "likely", status)
    assert ("is stuck in" if status == "hung" else "still works in") in judgement.verdict.summary


FULL = {"system_call": "write", "blocked_on": OpenFile(1, "pipe:[77]")}


@pytest.mark.parametrize(
    ("facts", "status", "held_by"),
    [
        ({"cpu_delta_s": 0.9}, "waiting", ""),
        (
            FULL,
            "hung",
            "waits for loader worker 0, which waits for its child process 9, which waits in write on pipe:[77]",
        ),
    ],
    ids=["it decodes", "nobody reads its output"],
)
def test_a_worker_waits_for_a_tool_that_it_has_started(facts: dict[str, Any], status: str, held_by: str) -> None:
    stuck = worker(0, FETCHING, system_call="wait4", waits_for=9)
    tool = ProcessEvidence("child", process(9, parent=stuck.facts.pid, command="gzip -dc", **facts), rank=0)
    one = fed(0, stuck, worker(1, IDLE))
    one = replace(one, children=(tool,))
    judgement = judge(one, WAITING)
    assert told(judgement) == ("loader-worker-blocked", "likely", status)
    assert "it waits for its child process 9 (`gzip -dc`)" in judgement.verdict.summary
    assert held(snapshot(one, WAITING)).get(0, "") == held_by


def test_a_worker_that_gets_on_is_not_the_one() -> None:
    moving = worker(0, FETCHING)
    moving = type(moving)(**{**vars(moving), "earlier_stacks": (ThreadStack(1, "MainThread", IDLE, main=True),)})
    judgement = judge(fed(0, moving, worker(1, FETCHING)), WAITING)
    assert blamed(judgement) == [(0, 201, "loader-worker")]


def test_what_it_is_blocked_on() -> None:
    stuck = worker(0, FETCHING, system_call="read", blocked_on=OpenFile(5, "/data/birds.h5", "nfs4"))
    judgement = judge(fed(0, stuck), WAITING)
    assert "it waits on /data/birds.h5 (nfs4)" in judgement.verdict.summary


def test_a_stream_is_in_a_batch_and_not_on_a_sample() -> None:
    stream = frames((SCRIPT, 30, "read_shard"), (SCRIPT, 25, "__iter__"), (FETCH, 35, "fetch"), below=_LOOP)
    judgement = judge(fed(0, worker(0, stream, sample="batch 60")), WAITING)
    assert "in read_shard (train.py:30) on batch 60" in judgement.verdict.summary


def test_all_ranks_on_one_dead_file_system() -> None:
    ranks = [fed(number, worker(0, FETCHING, rank=number)) for number in (0, 1)]
    judgement = judge(*ranks)
    assert {rank for rank, _, _ in blamed(judgement)} == {0, 1}
    assert told(judgement)[2] == "hung"


def test_a_rank_without_workers_is_stuck_itself() -> None:
    inside = frames((SCRIPT, 12, "__getitem__"), (FETCH, 54, "fetch"))
    judgement = judge(rank(0, inside, issued=10, completed=10), WAITING)
    assert (judgement.verdict.cause, blamed(judgement)) == ("user-code-blocked", [(0, 100, "rank")])


def test_only_the_loader_that_is_waited_for_counts() -> None:
    other = worker(5, FETCHING, pid=999)
    waited = worker(0, FETCHING)
    judgement = judge(fed(0, waited, other, loader={"worker_pids": (waited.facts.pid,)}), WAITING)
    assert blamed(judgement) == [(0, 200, "loader-worker")]
