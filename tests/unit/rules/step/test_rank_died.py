"""`rank-died`: a rank died."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Certainty, Phase, ProcessFacts, Progress, Status
from tests.unit.job import C10D, NOW, blamed, gone, judge, told
from tests.unit.job import told as said
from tests.unit.rules.step.aborts import EXTRA, calls, dead, lost
from tests.unit.rules.step.endings import DDP, ended, failed
from tests.unit.rules.step.worlds import STEP, changed, data_parallel, error, with_error, world
from tests.unit.simulator import Die, Leave, LoopEnd, World, blamed_ranks


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_rank_that_leaves_with_code_0_in_the_middle_has_died(culprit: int) -> None:
    judgement = judge(ended(culprit, Phase.STEP), failed(1 - culprit, (DDP, 1, "forward")))
    assert told(judgement) == ("rank-died", "proven", "failed")
    assert blamed(judgement) == [(culprit, 100 + culprit, "rank")]
    assert "left with exit code 0 in the middle of its training" in judgement.verdict.summary


def test_ranks_that_were_all_ended_by_sigterm_are_not_at_fault() -> None:
    judgement = judge(gone(0, -15, Phase.STEP), gone(1, -15, Phase.BACKWARD))
    assert told(judgement) == ("undetermined", "undetermined", "failed")
    assert blamed(judgement) == []
    assert "All ranks were ended by SIGTERM" in judgement.verdict.summary


def test_a_rank_ended_by_sigterm_before_the_other_lost_it_has_died() -> None:
    judgement = judge(gone(0, -15, Phase.STEP, ticker_at=NOW - 13), failed(1, (DDP, 1, "forward")))
    assert told(judgement)[0] == "rank-died"
    assert blamed(judgement) == [(0, 100, "rank")]


def test_a_rank_that_the_launcher_ended_after_another_had_failed_is_not_the_first_to_die() -> None:
    """GIVEN a rank that left, and one that failed for it, WHEN torchrun ends the rest THEN the first is named."""
    left = gone(3, 0, Phase.FINALIZING, progress=Progress(step=5, calls=9))
    since = {"ended_at": NOW - 11.9}  # when the process was gone; its ticker had been silent for some tenths before
    rest = [gone(rank, -15, Phase.EVAL, ticker_at=NOW - 12.2, evidence=since) for rank in (0, 1)]
    judgement = judge(*rest, failed(2, (C10D, 3000, "all_reduce")), left, world_size=4)
    assert told(judgement) == ("exit-destroy-asymmetric", "likely", "failed")
    assert blamed(judgement) == [(3, 103, "rank")]
    # AND where no rank has left, no rank that torchrun ended is blamed for the one that failed
    assert (0, 100, "rank") not in blamed(judge(*rest, failed(2, (C10D, 3000, "all_reduce")), world_size=3))


def test_all_ranks_leave_in_the_middle_and_none_waits() -> None:
    assert told(judge(ended(0, Phase.STEP), ended(1, Phase.STEP)))[2] == "waiting"


def test_a_rank_that_ended_by_itself_is_to_blame() -> None:
    judgement = judge(lost(0, calls(6)), dead(1, calls(6, EXTRA), -9))
    assert judgement.verdict.cause == "rank-died"
    assert blamed(judgement) == [(1, 101, "rank")]


def test_the_line_that_says_why_it_died_is_evidence() -> None:
    killed = dead(1, calls(6), -9, last_output="Memory cgroup out of memory: Killed process 101 (python)")
    judgement = judge(lost(0, calls(6)), killed)
    assert said(judgement)[0] == "rank-died"
    assert "its output says: Memory cgroup out of memory: Killed process 101 (python)" in judgement.verdict.evidence


@pytest.mark.parametrize(
    ("code", "words"), [(-9, "SIGKILL"), (-11, "SIGSEGV"), (3, "exit code 3"), (None, "not known")]
)
def test_a_dead_rank_is_named_with_its_exit_code_or_signal(code: int | None, words: str) -> None:
    judgement = diagnose(world(STEP * 5, [*STEP * 3, Die(code)], STEP * 5))
    assert judgement.verdict.cause == "rank-died"
    assert judgement.verdict.certainty is Certainty.PROVEN
    assert blamed_ranks(judgement) == [1]
    assert words in judgement.verdict.summary


def test_ranks_that_fail_because_one_has_ended_are_not_to_blame_for_it() -> None:
    # GIVEN a rank that ran out of data and ended well, and others that fail with "connection closed" because of it
    short = [*data_parallel(4), LoopEnd(), Leave(), Die(0)]
    snapshot = World([data_parallel(5), short, data_parallel(5)]).run().snapshot()
    gone = ProcessFacts(4001, "X", exit_code=0)
    snapshot = changed(snapshot, 1, lambda e: replace(e, process=gone, stacks=()))
    closed = replace(error("Connection closed by peer", fatal=True), type="RuntimeError")
    for rank in (0, 2):
        snapshot = changed(snapshot, rank, with_error(closed))
        failed = ProcessFacts(4000 + rank, "X", exit_code=1)
        snapshot = changed(snapshot, rank, lambda e, failed=failed: replace(e, process=failed, stacks=()))  # type: ignore[misc]

    # THEN the one that ran out of data is
    judgement = diagnose(snapshot)
    assert judgement.verdict.cause == "uneven-steps"
    assert blamed_ranks(judgement) == [1]
    assert judgement.status is Status.FAILED


def test_of_a_rank_with_nothing_but_an_exit_code_it_is_not_known_whether_it_died_first() -> None:
    silent = replace(gone(1, 1, Phase.STEP), reading=None)
    assert blamed(judge(silent, world_size=2)) == [(1, 101, "rank")]
    # WHEN another has ended too THEN either may have ended for the other
    both = judge(silent, replace(gone(0, 1, Phase.STEP), reading=None), world_size=2)
    assert said(both) == ("undetermined", "undetermined", "failed")
    assert blamed(both) == []
    # AND one that was killed is the reason
    killed = judge(silent, gone(0, -9, Phase.STEP), world_size=2)
    assert blamed(killed) == [(0, 100, "rank")]


@pytest.mark.parametrize(
    ("phase", "when"), [(Phase.FINALIZING, "died after the end of its training: killed"), (Phase.STEP, "died: killed")]
)
def test_a_crash_in_destructors_is_no_death_in_the_training(phase: Phase, when: str) -> None:
    """gloo's destructors crash in one of some ten runs, where ranks end at different times."""
    judgement = judge(gone(0, -15, Phase.FINALIZING), gone(1, -11, phase))
    assert told(judgement)[0] == "rank-died"
    assert f"{when} by SIGSEGV" in judgement.verdict.summary


@pytest.mark.parametrize(
    ("at_work", "code", "cause"),
    [(Phase.BETWEEN, -15, "rank-died"), (Phase.FINALIZING, -15, None), (Phase.BETWEEN, -9, "rank-died")],
    ids=["ended by its launcher", "through as well", "died by itself"],
)
def test_an_abort_at_the_exit_is_told_where_it_took_others_with_it(
    at_work: Phase, code: int, cause: str | None
) -> None:
    aborted = gone(1, -6, Phase.FINALIZING, evidence={"ended_at": NOW - 13})
    judgement = judge(gone(0, code, at_work), aborted)
    told_so = "was aborted (SIGABRT) at its exit" in judgement.verdict.summary
    assert told_so is (cause is not None and code == -15)
    if told_so:
        assert said(judgement) == ("rank-died", "likely", "failed")
        assert blamed(judgement) == [(1, 101, "rank")]
        assert "behind what rank 0 still did" in judgement.verdict.fix
