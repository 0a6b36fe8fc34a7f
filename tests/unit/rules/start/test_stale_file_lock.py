"""`stale-file-lock`: a lock file was left behind."""

from __future__ import annotations

from hangwatch.model import Frame, Judgement, LockFile, RankEvidence
from tests.unit.job import IN_BARRIER, IN_BATON, SCRIPT, blamed, judge, rank, told

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
