"""`stale-file-lock`: a lock file was left behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.judge.patience import FROM_OUTSIDE, held, outside_waits
from hangwatch.model import Frame, Judgement, LockFile, LoopFacts, PolledFile, RankEvidence, WayOut
from tests.unit.job import IN_BARRIER, IN_BATON, SCRIPT, blamed, judge, rank, snapshot, told

IN_NAP = (Frame(SCRIPT, 20, "__enter__"),)


def polling(lock: LockFile, **parts: object) -> RankEvidence:
    return rank(1, IN_BATON, evidence={"lock_files": (lock,)}, issued=3, completed=3, **parts)  # type: ignore[arg-type]


BARRED = rank(0, IN_BARRIER, issued=4, completed=3)


def test_a_lock_that_no_process_holds() -> None:
    judgement = judge(BARRED, polling(LockFile("/home/ann/.cache/ext/lock", None, False, 3600.0)))
    assert told(judgement) == ("stale-file-lock", "proven", "hung")
    assert judgement.verdict.fix == "rm /home/ann/.cache/ext/lock"
    assert (blamed(judgement), judgement.verdict.victims) == ([], (0, 1))


def test_a_lock_on_a_file_system_that_other_machines_share() -> None:
    judgement = judge(BARRED, polling(LockFile("/shared/ext/lock", None, False, 3600.0, filesystem="nfs4")))
    assert told(judgement) == ("stale-file-lock", "likely", "hung")
    assert judgement.verdict.fix == "rm /shared/ext/lock, once no process on another machine holds it"
    assert "it lies on nfs4: a process of another machine can hold it as well" in judgement.verdict.evidence


def test_a_lock_whose_owner_is_dead() -> None:
    judgement = judge(BARRED, polling(LockFile("/data/lock", 77, False, 60.0)))
    assert blamed(judgement) == [(None, 77, "other")]


def test_a_lock_file_of_the_programs_own_that_a_dead_process_has_made() -> None:
    """GIVEN a rank that sleeps between its tries to make a file, whose text is the pid of a dead process
    THEN the file is told; a pid in a text may be one of another machine, so that is likely, and patience decides."""
    lock = LockFile("/cache/tokens.lock", 77, False, 60.0)

    def waiting(still_s: float) -> Judgement:
        return judge(BARRED, rank(1, IN_NAP, evidence={"lock_files": (lock,)}, issued=3, completed=3, still_s=still_s))

    judgement = waiting(200.0)
    assert told(judgement) == ("stale-file-lock", "likely", "hung")
    assert told(waiting(2.0)) == ("stale-file-lock", "likely", "waiting")
    assert "/cache/tokens.lock, which belongs to pid 77, which is dead" in judgement.verdict.summary
    assert judgement.verdict.fix == "rm /cache/tokens.lock"


def test_a_lock_that_a_process_holds() -> None:
    judgement = judge(BARRED, polling(LockFile("/data/lock", 77, True, 60.0)))
    assert told(judgement) == ("lock-held-by-process", "likely", "hung")
    assert "which pid 77 holds" in judgement.verdict.summary


def test_a_lock_that_was_made_just_now() -> None:
    fresh = polling(LockFile("/data/lock", None, False, 1.0), still_s=2.0)
    assert told(judge(BARRED, fresh)) == ("stale-file-lock", "likely", "waiting")


LOOP = LoopFacts(
    Frame(SCRIPT, 19, "__enter__"),
    leaves=(Frame(SCRIPT, 19, "__enter__"),),
    ways_out=(WayOut(Frame(SCRIPT, 19, "__enter__"), "while os.path.exists(self.path)"),),
)


def looking(file: PolledFile, number: int = 1, *, guard: str = "none", **parts: Any) -> RankEvidence:
    """It sleeps between two looks for a file; its process is a minute old."""
    found = rank(
        number,
        IN_NAP,
        evidence={"polled": file},
        issued=3,
        completed=3,
        facts={"system_call": "clock_nanosleep", "sleeps_s": 0.4},
        world_size=3,
        **parts,
    )
    stacks = tuple(replace(each, loop=LOOP, in_loop=True, guard=guard) for each in found.stacks)
    return replace(found, stacks=stacks, earlier_stacks=stacks)


LEFT = PolledFile("/cache/features.lock", True, 3600.0)


def test_a_file_that_was_there_before_the_job_and_is_waited_for_to_go() -> None:
    waits = (rank(0, IN_BARRIER, issued=4, completed=3), looking(LEFT, still_s=70.0, patience_s=60.0))
    judgement = judge(*waits)
    assert told(judgement) == ("stale-file-lock", "likely", "hung")
    assert (blamed(judgement), judgement.verdict.victims) == ([], (0, 1))
    assert (
        "Rank 1 waits until /cache/features.lock is removed (train.py:20) (`while os.path.exists(self.path)`): the file"
        " was there before this job, and no living process has it open."
    ) in judgement.verdict.summary
    assert judgement.verdict.fix.startswith("rm /cache/features.lock, once nothing uses it any more;")
    assert held(snapshot(*waits)) == {1: "waits until /cache/features.lock is removed, which is older than the job"}


@pytest.mark.parametrize(
    "file",
    [
        replace(LEFT, age_s=30.0),
        replace(LEFT, held=True),
        replace(LEFT, exists=False),
    ],
    ids=["made by the job", "in use", "awaited, and not there"],
)
def test_a_file_that_may_yet_go_or_come_is_none_left_over(file: PolledFile) -> None:
    others = [rank(number, IN_BARRIER, issued=4, completed=3, world_size=3) for number in (0, 2)]
    judgement = judge(*others, looking(file, still_s=200.0), world_size=3)
    assert judgement.verdict.cause == "user-code-blocked"
    assert any(file.path in sentence for sentence in judgement.verdict.evidence)


def test_on_a_shared_file_system_a_process_of_another_machine_may_use_it() -> None:
    shared = replace(LEFT, filesystem="nfs4")
    waits = (rank(0, IN_BARRIER, issued=4, completed=3), looking(shared, still_s=200.0))
    assert "no living process of this machine has it open" in judge(*waits).verdict.summary
    assert held(snapshot(*waits)) == {}


def test_ranks_that_look_for_files_of_different_names() -> None:
    ranks = [looking(PolledFile(f"/cache/{n}.pt", False), n, guard="rank", still_s=200.0) for n in (1, 2)]
    judgement = judge(rank(0, IN_BARRIER, issued=4, completed=3, world_size=3), *ranks, world_size=3)
    assert told(judgement) == ("user-code-blocked", "likely", "hung")
    assert blamed(judgement) == []
    assert (
        "Ranks 1-2 look for files of different names that are not there (train.py:20): rank 1 for /cache/1.pt and rank"
        " 2 for /cache/2.pt; rank 0 waits for them"
    ) in judgement.verdict.summary
    alike = [looking(PolledFile("/cache/1.pt", False), n, guard="rank", still_s=200.0) for n in (1, 2)]
    found = judge(rank(0, IN_BARRIER, issued=4, completed=3, world_size=3), *alike, world_size=3)
    assert "different names" not in found.verdict.summary
    assert "rank 1 looks for /cache/1.pt, which is not there" in found.verdict.evidence


def test_a_rank_that_looks_in_another_folder_than_the_one_to_which_the_file_came() -> None:
    file = PolledFile("/tmp/job-a/index.done", False, beside="job-b/index.done", beside_age_s=30.0)
    ranks = [looking(file, n, guard="rank", still_s=200.0) for n in (1, 2)]
    judgement = judge(rank(0, IN_BARRIER, issued=4, completed=3, world_size=3), *ranks, world_size=3)
    assert told(judgement) == ("user-code-blocked", "likely", "hung")
    assert (
        "Ranks 1-2 look for /tmp/job-a/index.done, which is not there (train.py:20); one of that name came to"
        " /tmp/job-b; rank 0 waits for them"
    ) in judgement.verdict.summary
    assert any("came to /tmp/job-b 30 s ago" in sentence for sentence in judgement.verdict.evidence)


@pytest.mark.parametrize(("guard", "longer"), [("rank", {}), ("none", {1: FROM_OUTSIDE, 2: FROM_OUTSIDE})])
def test_what_another_rank_should_make_is_no_wait_for_what_comes_from_outside(
    guard: str, longer: dict[int, float]
) -> None:
    ranks = [looking(PolledFile("/cache/1.pt", False), n, guard=guard) for n in (1, 2)]
    assert outside_waits(snapshot(rank(0, IN_BARRIER, issued=4, completed=3, world_size=3), *ranks)) == longer
