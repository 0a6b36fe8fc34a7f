"""Locks that other living processes hold: who waits, who holds, and when that is a deadlock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.judge.patience import held
from hangwatch.model import (
    Collectives,
    Frame,
    GroupHead,
    LockFile,
    LockOwner,
    OpenFile,
    Phase,
    ProcessEvidence,
    Progress,
    RankEvidence,
    Stage,
)
from tests.unit.job import (
    FETCHING,
    IN_BARRIER,
    IN_CODE,
    LIB,
    NOW,
    SCRIPT,
    blamed,
    feeding,
    frames,
    judge,
    main_thread,
    process,
    rank,
    snapshot,
    starting,
    told,
    worker,
)

CAUSE = "lock-held-by-process"
PATH = "/data/cache/shards.lock"
STRANGER = LockOwner(4711, "stranger", None, "python prepare.py", NOW - 600, 0.0)
IN_POOL = frames((f"{LIB}/threading.py", 320, "wait"), (f"{LIB}/multiprocessing/pool.py", 767, "get"))


def lock(owner: LockOwner | None = STRANGER, path: str = PATH, **parts: Any) -> LockFile:
    return LockFile(path, owner.pid if owner else None, True, 600.0, owner=owner, **parts)


def waits(number: int, found: LockFile, call: str = "flock", **parts: Any) -> RankEvidence:
    """A rank that the kernel keeps waiting for a lock; another `call` is a nap between two tries."""
    facts = {"system_call": call, "blocked_on": OpenFile(7, found.path, "ext4") if call == "flock" else None}
    parts = {"issued": 3, "completed": 3, **parts}
    return rank(number, IN_CODE, facts=facts, evidence={"lock_files": (found,)}, **parts)


def barred(number: int, **parts: Any) -> RankEvidence:
    return rank(number, IN_BARRIER, issued=4, completed=3, **parts)


def test_a_process_beside_the_job_holds_it() -> None:
    judgement = judge(barred(0), waits(1, lock()))
    verdict = judgement.verdict
    assert told(judgement) == (CAUSE, "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank"), (None, 4711, "other")]
    assert verdict.culprits[0].where == Frame(SCRIPT, 50, "main")
    assert verdict.summary == (
        f"Rank 1 waits for the lock file {PATH} (train.py:50), which pid 4711 (`python prepare.py`) holds, no process"
        " of this job; rank 0 waits for rank 1 (train.py:50)."
    )
    assert verdict.evidence == (
        "rank 1 waits for that lock (train.py:50)",
        "it is in the system call flock, which returns when the lock is free",
        f"pid 4711 (`python prepare.py`) holds {PATH}",
        "two samples of rank 1 agree",
        "pid 4711 was started 10 min ago and is no process of this job",
        "pid 4711 used 0.00 s of processor time between two samples",
    )
    assert "wait for pid 4711 or end it" in verdict.fix
    assert verdict.hang is not None
    assert verdict.hang.value == "likely", "its holder may let go of it"


def test_a_leftover_of_an_earlier_run_holds_it() -> None:
    judgement = judge(barred(0), waits(1, lock(replace(STRANGER, role="leftover"))))
    assert "holds, left over from an earlier run, whose launcher is gone;" in judgement.verdict.summary
    assert judgement.verdict.fix.startswith("kill 4711")


def test_a_holder_that_works_may_let_go_of_it() -> None:
    judgement = judge(barred(0), waits(1, lock(replace(STRANGER, cpu_delta_s=0.7))))
    assert told(judgement) == (CAUSE, "likely", "waiting")


@pytest.mark.parametrize(("still_s", "status"), [(20.0, "waiting"), (40.0, "hung")])
def test_the_patience_of_a_rank_that_holds_it_counts_as_well(still_s: float, status: str) -> None:
    """GIVEN a holder that waits for its build, which is given longer, THEN those that wait are no sooner hung."""
    holder = rank(0, IN_CODE, world_size=2, issued=3, completed=3, still_s=still_s)
    judgement = judge(holder, waits(1, lock(of_rank(0)), world_size=2))
    assert told(judgement)[0::2] == (CAUSE, status)


def test_patience_before_it() -> None:
    judgement = judge(barred(0), waits(1, lock(), still_s=5.0))
    assert told(judgement) == (CAUSE, "likely", "waiting")


LEFT = replace(STRANGER, role="leftover")


def test_a_lock_that_is_tried_for_again_and_again_is_likely_and_shortens_patience() -> None:
    napping = waits(1, lock(LEFT, inferred=True), call="clock_nanosleep", still_s=62.0, patience_s=300.0)
    judgement = judge(barred(0), replace(napping, patience_s=60.0))
    assert told(judgement) == (CAUSE, "likely", "hung")
    assert "rank 1 sleeps with that file open, and tries for it again and again (train.py:50)" in (
        judgement.verdict.evidence
    )
    facts = held(snapshot(barred(0), napping))
    assert facts[1] == (
        f"waits for the lock file {PATH}, which pid 4711 (`python prepare.py`) holds, left over from an earlier run,"
        " whose launcher is gone"
    )


def test_a_living_program_beside_the_job_does_not_shorten_patience() -> None:
    """It may let go of the lock: what the rank waits for is late, and not lost."""
    assert 1 not in held(snapshot(barred(0), waits(1, lock())))


def test_a_holder_that_works_does_not_shorten_patience() -> None:
    napping = waits(1, lock(replace(STRANGER, cpu_delta_s=0.7), inferred=True), call="clock_nanosleep")
    assert 1 not in held(snapshot(barred(0), napping))


@pytest.mark.parametrize(
    ("role", "process_kind", "words"),
    [
        ("child", "other", "a child process of rank 0"),
        ("loader-worker", "loader-worker", "a loader worker of rank 0"),
        ("orphan", "other", "left behind by rank 0"),
    ],
)
def test_a_process_of_another_rank_holds_it(role: str, process_kind: str, words: str) -> None:
    owner = LockOwner(77, role, 0, "python train.py", NOW - 30, 0.0)
    helper = ProcessEvidence("child", process(77), (main_thread((Frame(SCRIPT, 31, "plot"),)),), rank=0)
    holder = barred(0, evidence={"children": (helper,)})
    judgement = judge(holder, waits(1, lock(owner)))
    assert told(judgement) == (CAUSE, "proven", "hung")
    assert blamed(judgement) == [(0, 77, process_kind)]
    assert judgement.verdict.culprits[0].where == Frame(SCRIPT, 31, "plot")
    assert f"holds, {words};" in judgement.verdict.summary
    assert "pid 77 stands at train.py:31" in judgement.verdict.evidence


def of_rank(number: int) -> LockOwner:
    return LockOwner(100 + number, "rank", number, "python train.py", NOW - 60, 0.0)


def test_a_rank_holds_it_across_a_collective() -> None:
    judgement = judge(barred(0, world_size=3), waits(1, lock(of_rank(0)), world_size=3), barred(2, world_size=3))
    verdict = judgement.verdict
    assert told(judgement) == (CAUSE, "proven", "hung")
    assert (blamed(judgement), verdict.victims) == ([(0, 100, "rank")], (1, 2))
    assert verdict.summary == (
        f"Rank 0 holds the lock file {PATH} and waits in barrier 4 of group 0 (train.py:50), and rank 1 waits for it"
        " (train.py:50): a deadlock."
    )
    assert verdict.hang is not None
    assert verdict.hang.value == "proven"
    assert verdict.argument == ("each lock's holder waits for a process that waits for the lock",)
    assert "let go of the lock before the collective" in verdict.fix


def test_a_wait_that_an_alarm_may_end_is_no_proof() -> None:
    stuck = waits(1, lock(of_rank(0)), world_size=3, still_s=4.0)
    assert stuck.process is not None
    stuck = replace(stuck, process=replace(stuck.process, has_alarm=True))
    judgement = judge(barred(0, world_size=3, still_s=4.0), stuck, barred(2, world_size=3, still_s=4.0))
    assert told(judgement) == (CAUSE, "likely", "waiting")


def test_a_rank_that_waits_for_what_it_has_itself_is_no_circle_of_two() -> None:
    """A flock belongs to an open file, of which the process has two: the thread that has the other may let go of it."""
    pid = waits(0, lock()).pid
    assert pid is not None
    own = LockOwner(pid, "rank", 0, "python train.py", NOW - 600, 0.0)
    judgement = judge(waits(0, lock(own)), rank(1, IN_BARRIER, issued=4, completed=3))
    assert (judgement.verdict.cause, blamed(judgement)[0][0]) == (CAUSE, 0)
    assert "which it holds itself, by another open file" in judgement.verdict.summary
    assert "deadlock" not in judgement.verdict.summary
    beside = judge(*(waits(number, lock(own), world_size=3) for number in (0, 1, 2)), world_size=3).verdict
    assert beside.summary.startswith("Rank 0 waits for ")
    assert "by another open file, and ranks 1-2 wait for it too" in beside.summary
    assert beside.fix.startswith("take that lock once")


def test_all_that_wait_for_that_lock_are_told() -> None:
    both = (waits(number, lock(of_rank(0)), world_size=3) for number in (1, 2))
    verdict = judge(barred(0, world_size=3), *both).verdict
    assert verdict.summary.endswith("and ranks 1-2 wait for it (train.py:50): a deadlock.")
    assert len(verdict.evidence) == len(set(verdict.evidence))


def test_the_time_of_a_rank_that_holds_it_in_its_own_code_counts() -> None:
    """GIVEN a rank that prepares the data under a lock WHEN the others wait for that lock
    THEN it is no fact against them, unless their holder waits too."""
    waiting = waits(1, lock(of_rank(0)))
    pipe = {"system_call": "read", "blocked_on": OpenFile(5, "pipe:[7]")}
    assert held(snapshot(rank(0, IN_CODE, issued=3, completed=3), waiting)) == {}
    assert 1 in held(snapshot(rank(0, IN_CODE, issued=3, completed=3, facts=pipe), waiting))
    assert 1 in held(snapshot(barred(0), waiting))
    assert 1 in held(snapshot(barred(0), waits(1, lock(LEFT))))


def test_a_database_held_across_a_collective_is_likely() -> None:
    database = lock(of_rank(0), path="/runs/notes.db-shm", inferred=True)
    judgement = judge(barred(0), waits(1, database, call="clock_nanosleep"))
    assert told(judgement) == (CAUSE, "likely", "hung")
    assert "Rank 0 holds a lock of the database /runs/notes.db and waits in barrier" in judgement.verdict.summary


def test_a_rank_that_stands_in_its_own_code_with_the_lock() -> None:
    holder = rank(0, IN_CODE, world_size=3, issued=3, completed=3)
    judgement = judge(holder, waits(1, lock(of_rank(0)), world_size=3), barred(2, world_size=3))
    assert told(judgement) == (CAUSE, "proven", "hung")
    assert blamed(judgement) == [(0, 100, "rank")]
    assert "which rank 0 (pid 100) holds while it stands at train.py:50" in judgement.verdict.summary


def test_a_rank_that_works_with_the_lock_is_waited_for() -> None:
    holder = rank(0, IN_CODE, world_size=3, issued=3, completed=3, facts={"cpu_delta_s": 0.9})
    judgement = judge(holder, waits(1, lock(of_rank(0)), world_size=3), barred(2, world_size=3))
    assert told(judgement)[0::2] == (CAUSE, "waiting")


def test_two_locks_in_opposite_order() -> None:
    judgement = judge(waits(0, lock(of_rank(1), path="/data/b.lock")), waits(1, lock(of_rank(0), path="/data/a.lock")))
    assert told(judgement) == (CAUSE, "proven", "hung")
    assert {number for number, _, _ in blamed(judgement)} == {0, 1}
    assert "rank 0 holds the lock file /data/a.lock, and rank 1 waits for it" in judgement.verdict.summary


def in_pool(number: int, child: ProcessEvidence, **parts: Any) -> RankEvidence:
    return rank(number, IN_POOL, issued=3, completed=3, evidence={"children": (child,)}, **parts)


def writer(found: LockFile, call: str = "flock") -> ProcessEvidence:
    stacks = (main_thread((Frame(SCRIPT, 33, "write"),)),)
    return ProcessEvidence("child", process(90, system_call=call), stacks, stacks, 1, lock_files=(found,))


def test_a_rank_holds_what_its_own_child_waits_for() -> None:
    judgement = judge(barred(0), in_pool(1, writer(lock(of_rank(1))), facts={"waits_for": 90}))
    assert told(judgement) == (CAUSE, "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "a child process of rank 1 (pid 90) waits for it (train.py:33): a deadlock" in judgement.verdict.summary


def test_a_child_for_which_no_rank_waits_is_no_cause() -> None:
    idle = rank(1, IN_CODE, issued=3, completed=3, evidence={"children": (writer(lock()),)})
    assert judge(barred(0), idle).verdict.cause == "user-code-blocked"


def test_a_loader_worker_waits_for_it() -> None:
    stuck = replace(worker(0, FETCHING, rank=1, system_call="flock"), lock_files=(lock(),))
    fed = feeding(1, stuck, issued=3, completed=3)
    judgement = judge(barred(0), fed)
    assert told(judgement) == (CAUSE, "proven", "hung")
    assert "Loader worker 0 of rank 1 (pid 210) waits for the lock file" in judgement.verdict.summary
    assert "(train.py:12)" in judgement.verdict.summary


def test_before_the_rendezvous_it_belongs_to_the_start() -> None:
    late = waits(1, lock(), phase=Phase.START, progress=Progress(), issued=-1, completed=-1)
    judgement = judge(starting(0), late)
    assert told(judgement) == (CAUSE, "proven", "hung")
    assert judgement.stage is Stage.START
    assert (1, 101, "rank") in blamed(judgement)
    assert "rank 0 waits for rank 1" in judgement.verdict.summary


def test_all_ranks_wait_for_it_and_none_is_to_blame() -> None:
    judgement = judge(waits(0, lock()), waits(1, lock()))
    assert blamed(judgement) == [(None, 4711, "other")]
    assert judgement.verdict.summary.startswith("All ranks wait for the lock file")


def test_a_holder_that_cannot_be_seen() -> None:
    judgement = judge(barred(0), waits(1, lock(None, filesystem="nfs4")))
    verdict = judgement.verdict
    assert told(judgement) == (CAUSE, "likely", "hung")
    assert "which a process that cannot be seen from here (another machine may) holds" in verdict.summary
    assert f"{PATH} lies on nfs4: processes of other machines can hold it as well" in verdict.evidence
    assert blamed(judgement) == [(1, 101, "rank")]


def test_another_rank_in_code_of_its_own_is_no_less_suspect() -> None:
    other = rank(2, IN_CODE, world_size=3, issued=3, completed=3)
    judgement = judge(barred(0, world_size=3), waits(1, lock(), world_size=3), other)
    assert judgement.verdict.cause == "user-code-blocked"


def test_the_holder_of_another_host_is_not_mistaken_for_a_rank() -> None:
    """Pids are of one host: rank 0 has the holder's pid on another machine."""
    far = replace(
        barred(0, pid=4711), host="node-b", collectives=Collectives((GroupHead("0", (0, 1), "", "gloo", 4, 3),))
    )
    judgement = judge(far, waits(1, lock()))
    assert "a deadlock" not in judgement.verdict.summary
    assert (None, 4711, "other") in blamed(judgement)


def test_another_rank_that_comes_late_for_its_own_reasons_is_no_less_suspect() -> None:
    late = waits(1, lock(), world_size=3, phase=Phase.START, progress=Progress(), issued=-1, completed=-1)
    other = rank(2, IN_CODE, world_size=3, phase=Phase.START, progress=Progress())
    judgement = judge(starting(0, world_size=3), late, other)
    assert judgement.verdict.cause == "user-code-blocked"
    assert {number for number, _, _ in blamed(judgement)} == {1, 2}
