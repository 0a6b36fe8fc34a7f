"""`rendezvous-duplicate-rank`: two processes claim one rank."""

from __future__ import annotations

from tests.unit.job import IN_CODE, IN_MESH, NOW, blamed, gone, judge, rank, started, starting, told
from tests.unit.rules.start.starts import raised

_TWO_JOBS = ((11, 0, "29500"), (12, 1, "29500"), (21, 0, "29501"), (22, 1, "29501"))


def test_two_living_processes_of_one_rank() -> None:
    ranks = [starting(0), starting(1, IN_MESH, pid=111), starting(1, IN_MESH, pid=122, started_at=NOW - 50)]
    judgement = judge(*ranks)
    assert told(judgement) == ("rendezvous-duplicate-rank", "proven", "hung")
    assert blamed(judgement) == [(1, 111, "rank"), (1, 122, "rank")]


def test_the_rank_that_nobody_claims_is_told_where_no_process_is_missing() -> None:
    ranks = [starting(0), starting(1, pid=111), starting(1, pid=122)]
    assert judge(*ranks, world_size=3).verdict.summary.endswith("; none claims rank 2.")
    assert "claims rank" not in judge(*ranks, world_size=4).verdict.summary


def test_one_of_an_earlier_start() -> None:
    ranks = [starting(0), starting(1, pid=122), starting(1, pid=11, started_at=NOW - 7200)]
    judgement = judge(*ranks)
    assert judgement.verdict.fix == "kill 11, which is left from an earlier start"


def test_ranks_that_join_under_their_local_rank() -> None:
    """Two nodes of two: each rank of the second one claims that of its neighbour on the first."""
    asked = [(claimed, claimed + 2 * node, 100 + 10 * node + claimed) for node in (0, 1) for claimed in (0, 1)]
    environments = {pid: {"RANK": str(own), "LOCAL_RANK": str(claimed)} for claimed, own, pid in asked}
    ranks = [starting(claimed, pid=pid, environment=environments[pid]) for claimed, _, pid in asked]
    launched = [started(own, pid=pid, board=True) for _, own, pid in asked]
    verdict = judge(*ranks, launched=tuple(launched), world_size=4).verdict
    assert {who.rank for who in verdict.culprits} == {0, 1}
    assert verdict.summary.endswith("and 2 rank 1: pid 101 and pid 111; none claims ranks 2-3.")
    assert any("in its environment pid 110 has RANK=2" in sentence for sentence in verdict.evidence)
    assert "and not as LOCAL_RANK" in verdict.fix


def test_two_jobs_of_one_command_are_no_twins() -> None:
    """Each has a rank 0 and a rank 1: at an address of its own, or well under way."""
    apart = [starting(rank, pid=pid, environment={"MASTER_PORT": port}) for pid, rank, port in _TWO_JOBS]
    assert judge(*apart).verdict.cause != "rendezvous-duplicate-rank"
    at_work = [rank(number, IN_CODE, pid=pid, issued=40, completed=40) for pid, number, _ in _TWO_JOBS]
    assert judge(*at_work).verdict.cause != "rendezvous-duplicate-rank"


def test_several_that_are_left_from_an_earlier_start() -> None:
    late = [starting(number, pid=100 + number) for number in (0, 1)]
    left = [starting(number, pid=10 + number, started_at=NOW - 7200) for number in (0, 1)]
    assert judge(*left, *late).verdict.fix == "kill 10 and 11, which are left from an earlier start"


def test_a_child_of_a_rank_is_not_its_twin() -> None:
    child = starting(1, pid=122, facts={"parent": 101})
    assert judge(starting(0), starting(1), child).verdict.cause != "rendezvous-duplicate-rank"


def test_twins_that_failed_together() -> None:
    twins = (started(1, pid=111, ended_at=NOW - 2), started(1, pid=122, ended_at=NOW - 2))
    judgement = judge(gone(0), gone(1, 1, exception=raised("RuntimeError", "Connection reset by peer")), launched=twins)
    assert told(judgement) == ("rendezvous-duplicate-rank", "proven", "failed")


def test_a_successor_is_not_a_twin() -> None:
    earlier = started(1, pid=111, ended_at=NOW - 50)
    later = started(1, pid=122, started_at=NOW - 50)
    judgement = judge(starting(0), starting(1, pid=122), launched=(started(0), earlier, later), world_size=3)
    assert judgement.verdict.cause == "rendezvous-missing-ranks"
