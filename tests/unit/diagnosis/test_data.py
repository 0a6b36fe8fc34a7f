"""Jobs that wait for data."""

from __future__ import annotations

from typing import Any

import pytest

from hangwatch.model import (
    ExceptionFacts,
    Frame,
    LoaderFacts,
    OpenFile,
    Phase,
    RankEvidence,
    Stage,
    StepEntry,
    ThreadStack,
)
from tests.unit.diagnosis.job import (
    _LOOP,
    CONNECTION,
    FEEDER,
    FETCH,
    FETCHING,
    IDLE,
    IN_BACKWARD,
    IN_BARRIER,
    IN_CODE,
    IN_RESOURCE_SHARER,
    LIB,
    LOADER,
    NOW,
    SCRIPT,
    USER,
    blamed,
    feeding,
    frames,
    gone,
    judge,
    rank,
    told,
    worker,
)

WAITING = rank(1, IN_BACKWARD, issued=11, completed=10)  # for rank 0
GIB = 1 << 30


def fed(number: int = 0, *workers: object, **parts: object) -> RankEvidence:
    return feeding(number, *workers, issued=10, completed=10, **parts)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------ a worker is stuck


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
    early = fed(0, worker(0, FETCHING), still_s=8.0, patience_s=120.0)
    assert told(judge(early, WAITING)) == ("loader-worker-blocked", "likely", "waiting")


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


# ------------------------------------------------------------------------------------------ locks from before the fork


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


# ------------------------------------------------------------------------------------------ dead and frozen


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


def error(kind: str, message: str) -> dict[str, object]:
    return {"exception": ExceptionFacts(kind, message, (), at=NOW - 5)}


def failing(number: int, message: str, **parts: object) -> RankEvidence:
    return gone(number, 1, issued=10, completed=10, **error("RuntimeError", message), **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "pids", "how"),
    [
        ("DataLoader worker (pid 4711) is killed by signal: Killed. ", [4711], "killed by signal Killed"),
        ("DataLoader worker (pid(s) 1, 2) exited unexpectedly", [1, 2], "it exited unexpectedly"),
        ("DataLoader worker (pid 9) exited unexpectedly with exit code 3.", [9], "it exited unexpectedly"),
    ],
)
def test_a_worker_that_died_as_the_rank_reports_it(message: str, pids: list[int], how: str) -> None:
    judgement = judge(failing(0, message), failing(1, "Connection closed by peer"))
    assert told(judgement) == ("loader-worker-died", "proven", "failed")
    assert blamed(judgement) == [(0, pid, "loader-worker") for pid in pids]
    assert how in judgement.verdict.summary


def test_for_want_of_memory() -> None:
    judgement = judge(failing(0, "DataLoader worker (pid 4711) is killed by signal: Killed."), node={"oom_kills": 1})
    assert "killed by signal Killed, out of memory" in judgement.verdict.summary


def test_others_that_still_wait_for_a_rank_that_is_long_gone() -> None:
    judgement = judge(failing(0, "DataLoader worker (pid 4711) is killed by signal: Killed."), WAITING)
    assert told(judgement) == ("loader-worker-died", "proven", "hung")


def test_a_worker_that_died_and_nobody_has_noticed() -> None:
    judgement = judge(fed(0, worker(0, (), state="Z", exit_code=-9), worker(1, IDLE)), WAITING)
    assert told(judgement)[:2] == ("loader-worker-died", "proven")
    assert "killed by SIGKILL" in judgement.verdict.summary


def test_workers_of_an_epoch_that_is_over_may_go() -> None:
    over = fed(0, worker(0, (), state="X"), loader={"exhausted": True})
    assert judge(over, WAITING).verdict.cause != "loader-worker-died"


# ------------------------------------------------------------------------------------------ resources


@pytest.mark.parametrize(
    "message",
    [
        "unable to allocate shared memory(shm) for file </torch_8_1_0>: No space left on device (28)",
        (
            "Caught RuntimeError in DataLoader worker process 0.\nTraceback ...\n"
            "RuntimeError: unable to write to file </torch_12_3>: No space left on device (28)"
        ),
        (
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out"
            " of shared memory. Please try to raise your shared memory limit."
        ),
    ],
)
def test_no_room_in_shared_memory(message: str) -> None:
    judgement = judge(failing(0, message), node={"shm_total": GIB // 16, "shm_free": GIB // 4096})
    assert told(judgement)[0::2] == ("shared-memory-exhausted", "failed")
    assert blamed(judgement) in ([(0, 100, "rank")], [(0, 7, "loader-worker")])
    assert "which has 64 MiB in all" in judgement.verdict.summary


def test_the_worker_that_an_error_names_by_its_index() -> None:
    loader = LoaderFacts(0, 9, epoch=0, num_workers=2, worker_pids=(71, 72))
    text = "Caught RuntimeError in DataLoader worker process 1.\n</torch_1>: No space left on device"
    assert blamed(judge(failing(0, text, loaders=(loader,)))) == [(0, 72, "loader-worker")]


KILLED = "DataLoader worker (pid 4711) is killed by signal: Killed."


def handled(at: float, *steps: float) -> RankEvidence:
    """Rank 1 has handled a loader's error, and waits at a barrier."""
    error = ExceptionFacts("RuntimeError", KILLED, (), at=at, fatal=False)
    ledger = tuple(StepEntry(number, 0, number, 0, at) for number, at in enumerate(steps))
    return rank(1, IN_BARRIER, exception=error, steps=ledger, issued=11, completed=10)


def test_an_error_that_the_rank_has_handled() -> None:
    judgement = judge(rank(0, IN_BACKWARD, issued=11, completed=10), handled(NOW - 40, NOW - 50, NOW - 41))
    assert told(judgement)[:2] == ("loader-worker-died", "likely")
    assert blamed(judgement) == [(1, 4711, "loader-worker")]


def test_an_error_that_is_over() -> None:
    judgement = judge(rank(0, IN_BACKWARD, issued=11, completed=10), handled(NOW - 40, NOW - 41, NOW - 39))
    assert judgement.verdict.cause != "loader-worker-died"


def test_a_full_one_and_a_worker_that_does_not_get_on() -> None:
    judgement = judge(fed(0, worker(0, FETCHING)), WAITING, node={"shm_total": GIB, "shm_free": 4096})
    assert told(judgement)[:2] == ("shared-memory-exhausted", "likely")


def test_a_full_disk_is_something_else() -> None:
    judgement = judge(failing(0, "[Errno 28] No space left on device: '/data/log'"))
    assert judgement.verdict.cause == "exception-on-one-rank"


@pytest.mark.parametrize("message", ["[Errno 24] Too many open files", "received 0 items of ancdata"])
def test_too_many_open_files(message: str) -> None:
    judgement = judge(failing(0, message), WAITING)
    assert told(judgement)[:2] == ("file-descriptors-exhausted", "proven")


def test_near_the_limit() -> None:
    full = fed(0, worker(0, FETCHING, descriptors=1020, descriptor_limit=1024))
    judgement = judge(full, WAITING)
    assert told(judgement)[:2] == ("file-descriptors-exhausted", "likely")
    assert "pid 200 of rank 0 has 1,020 of 1,024 descriptors open" in judgement.verdict.evidence


def test_a_batch_that_was_lost_for_want_of_descriptors() -> None:
    """The feeder thread of a worker prints its error and goes on; the thread that hands descriptors on ends."""
    idle = worker(0, IDLE, descriptors=18, descriptor_limit=128)
    lame = type(idle)(**{**vars(idle), "stacks": (*idle.stacks[:1], FEEDER)})
    judgement = judge(fed(0, lame), WAITING)
    assert told(judgement) == ("file-descriptors-exhausted", "likely", "hung")
    assert "a batch was lost on its way" in judgement.verdict.summary


def test_a_batch_that_was_lost_and_nobody_knows_why() -> None:
    judgement = judge(fed(0, worker(0, IDLE, descriptors=18, descriptor_limit=1 << 20)), WAITING)
    assert judgement.verdict.cause == "undetermined"


def test_a_worker_that_is_gone_in_the_middle_of_handing_over() -> None:
    taking = (Frame(CONNECTION, 395, "_recv"), Frame(LOADER, 1291, "_try_get_data"), *USER)
    error = ExceptionFacts("ConnectionResetError", "[Errno 104] Connection reset by peer", taking, at=NOW - 12)
    judgement = judge(gone(1, 1, Phase.FAILED, exception=error), feeding(0))
    assert judgement.verdict.cause == "loader-worker-died"
    assert blamed(judgement) == [(1, None, "loader-worker")]
    assert "while it handed a batch over" in judgement.verdict.summary


def test_a_peer_that_is_gone_is_no_worker() -> None:
    error = ExceptionFacts("ConnectionResetError", "[Errno 104] Connection reset by peer", USER, at=NOW - 12)
    assert judge(gone(1, 1, Phase.FAILED, exception=error), feeding(0)).verdict.cause != "loader-worker-died"
