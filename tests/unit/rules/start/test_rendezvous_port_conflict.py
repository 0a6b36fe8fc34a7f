"""`rendezvous-port-conflict`: another program has the master's port."""

from __future__ import annotations

from tests.unit.job import IN_WAIT, blamed, judge, launcher, process, starting, told
from tests.unit.rules.start.starts import dead_before, raised

TAKEN = raised("DistNetworkError", "The server socket has failed to listen. port: 29500, code: -98, name: EADDRINUSE")


def test_a_port_that_another_job_has() -> None:
    stranger = process(9, command="python other_train.py")
    judgement = judge(dead_before(0, exception=TAKEN), starting(1), node={"master_listener": stranger})
    assert told(judgement) == ("rendezvous-port-conflict", "proven", "hung")
    assert blamed(judgement) == [(None, 9, "other")]
    assert "pid 9 (python other_train.py)" in judgement.verdict.summary


def test_a_rank_that_was_refused_the_port_does_not_wait_there() -> None:
    """GIVEN rank 0, of which a look took a last stack in the rendezvous WHEN it has failed there already."""
    failing = starting(0, exception=TAKEN)
    summary = judge(failing, starting(1)).verdict.summary
    assert summary.endswith("rank 0 was refused it, and rank 1 waits there for a job that is not theirs.")


def test_a_port_that_another_process_had() -> None:
    judgement = judge(dead_before(0, exception=TAKEN, launcher="torchrun"), starting(1, launcher="torchrun"))
    assert told(judgement) == ("rendezvous-port-conflict", "likely", "failed")
    assert blamed(judgement) == []


def test_a_store_of_our_own_is_no_conflict() -> None:
    ours = launcher(IN_WAIT, pid=50, waits_for=100)
    judgement = judge(starting(1), world_size=2, launchers=(ours,), node={"master_listener": process(50)})
    assert judgement.verdict.cause == "rendezvous-missing-ranks"
