"""`rank-died-before-init`: a rank died before it registered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import Frame, Judgement, Phase, ProcessEvidence
from tests.unit.job import IN_BARRIER, NOW, SCRIPT, blamed, gone, judge, other, rank, started, starting, told
from tests.unit.rules.start.starts import dead_before, raised


def test_a_rank_that_raised_before_it_registered() -> None:
    judgement = judge(starting(0), dead_before(1, state="Z", exception=raised()))
    assert told(judgement) == ("rank-died-before-init", "proven", "hung")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "ImportError: No module named 'birds' (train.py:7)" in judgement.verdict.summary
    assert judgement.verdict.culprits[0].where == Frame(SCRIPT, 7, "<module>")


@pytest.mark.parametrize("name", ["torchrun", "spawn"])
def test_a_launcher_that_ends_the_others_makes_it_a_failure(name: str) -> None:
    judgement = judge(starting(0, launcher=name), dead_before(1, exception=raised(), launcher=name))
    assert told(judgement) == ("rank-died-before-init", "proven", "failed")


def test_a_rank_that_left_with_code_0_is_missed_too() -> None:
    assert told(judge(starting(0), dead_before(1, 0))) == ("rank-died-before-init", "proven", "hung")


def test_no_launcher_ends_the_others_after_exit_code_0() -> None:
    """GIVEN a rank that ended without an error before it registered, below torchrun, which takes that for success
    THEN the others wait for ever, and no error is there to be mended."""
    judgement = judge(starting(0, launcher="torchrun"), dead_before(1, 0, launcher="torchrun"))
    assert told(judgement) == ("rank-died-before-init", "proven", "hung")
    assert "error" not in judgement.verdict.fix


def test_its_last_words_in_a_log() -> None:
    log = "loading\nValueError: lr must be positive\n"
    judgement = judge(starting(0), dead_before(1, evidence={"last_output": log}))
    assert "ValueError: lr must be positive" in judgement.verdict.summary


def test_last_words_that_tell_of_another_rank_are_no_error_of_its_own() -> None:
    log = "RuntimeError: Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused\n"
    assert judge(starting(0), dead_before(1, evidence={"last_output": log})).verdict.cause != "rank-died-before-init"


def test_a_process_that_died_without_a_board() -> None:
    dead = started(1, pid=222, ended_at=NOW - 4, exit_code=-9)
    judgement = judge(starting(0), launched=(started(0), dead), world_size=2)
    assert told(judgement) == ("rank-died-before-init", "proven", "hung")
    assert blamed(judgement) == [(1, 222, "rank")]
    assert "killed by SIGKILL" in judgement.verdict.summary


def test_last_words_are_waited_for_a_moment() -> None:
    dead = started(1, pid=222, ended_at=NOW - 0.5, exit_code=1)
    assert told(judge(starting(0), launched=(dead,), world_size=2))[2] == "waiting"


def test_all_raised_the_same() -> None:
    judgement = judge(*(dead_before(number, exception=raised()) for number in (0, 1)))
    assert told(judgement) == ("rank-died-before-init", "proven", "failed")
    assert {rank for rank, _, _ in blamed(judgement)} == {0, 1}


def test_who_was_ended_by_the_launcher_is_not_to_blame() -> None:
    judgement = judge(dead_before(0, -15), dead_before(1, exception=raised()))
    assert blamed(judgement) == [(1, 101, "rank")]


def test_a_rank_that_was_a_member_died_later() -> None:
    judgement = judge(rank(0, IN_BARRIER, issued=4, completed=3), gone(1, 1, Phase.STEP, issued=3, completed=3))
    assert judgement.verdict.cause == "rank-died"


def _of_rank_zero(*children: ProcessEvidence, parent: int = 100) -> Judgement:
    """Rank 0 is the user's script, which starts the others itself; ranks 0 and 1 of three have come."""
    first = starting(0, evidence={"children": children})
    return judge(first, starting(1, facts={"parent": parent}), world_size=3)


def test_a_child_of_the_rank_that_starts_the_others_died() -> None:
    judgement = _of_rank_zero(other(300, "child", 0, state="Z", exit_code=1))
    assert told(judgement) == ("rank-died-before-init", "likely", "hung")
    assert blamed(judgement) == [(2, 300, "rank")]
    assert (
        "pid 300, which rank 0 started as it started other ranks, has ended (exit code 1)" in judgement.verdict.summary
    )


@pytest.mark.parametrize(
    ("children", "parent"),
    [
        ((other(300, "child", 0, state="Z", exit_code=0),), 100),
        ((other(300, "child", 0),), 100),
        ((other(300, "child", 0, state="Z", exit_code=1), other(301, "child", 0, state="Z", exit_code=1)), 100),
        ((other(300, "child", 0, state="Z", exit_code=1),), 50),
    ],
    ids=["it ended well", "it lives", "more than ranks lack", "a rank that starts no others"],
)
def test_other_children_are_not_taken_for_ranks(children: tuple[ProcessEvidence, ...], parent: int) -> None:
    assert _of_rank_zero(*children, parent=parent).verdict.cause == "rendezvous-missing-ranks"


@pytest.mark.parametrize(
    ("state", "exit_code", "parent", "cause"),
    [
        ("Z", 1, 50, "rank-died-before-init"),
        ("Z", 0, 50, "rendezvous-missing-ranks"),
        ("S", None, 50, "rendezvous-missing-ranks"),
        ("Z", 1, 60, "rendezvous-missing-ranks"),
    ],
    ids=["it died", "it ended well", "it lives", "of another process"],
)
def test_a_child_of_a_launcher_of_the_users_own_died(
    state: str, exit_code: int | None, parent: int, cause: str
) -> None:
    """multiprocessing's children have no RANK in their environment."""
    child = other(300, "other", None, state=state, exit_code=exit_code, parent=parent)
    ranks = [starting(number, facts={"parent": 50}) for number in (0, 1)]
    judgement = judge(*ranks, others=(child,), world_size=3)
    assert judgement.verdict.cause == cause
    assert [who for who, _, _ in blamed(judgement)] == [2]
    if cause == "rank-died-before-init":
        assert "pid 300, which the launcher started as it started other ranks" in judgement.verdict.summary


SHARED = f"""Traceback (most recent call last):
  File "{SCRIPT}", line 26, in main
    config = read(path)
FileNotFoundError: runs/config.json
[rank: 1] Child process with PID 222 terminated with code {{code}}. Forcefully terminating all other processes
"""


def test_who_was_killed_after_a_rank_that_it_had_started_is_not_the_one_that_failed() -> None:
    killed = dead_before(0, -9, evidence={"last_output": SHARED.format(code=1)})
    verdict = judge(killed, world_size=2).verdict
    assert blamed(judge(killed, world_size=2)) == [(1, 222, "rank")]
    assert (
        "Rank 1 ended before init_process_group: FileNotFoundError: runs/config.json (train.py:26)" in verdict.summary
    )
    # AND a signal that ended it is no error of the program
    by_signal = judge(dead_before(0, -9, evidence={"last_output": SHARED.format(code=-11)}), world_size=2).verdict
    assert "SIGSEGV" in by_signal.summary
    assert "FileNotFoundError" not in by_signal.summary


def test_the_rank_of_which_spawn_tells_an_error_failed_before_the_others_were_ended() -> None:
    said = (
        "-- Process 2 terminated with the following error:\nTraceback (most recent call last):\n"
        f'  File "{SCRIPT}", line 5, in shard\n    open(path)\nFileNotFoundError: part-02.txt\n'
    )
    ended = [dead_before(rank, -15, launcher="spawn", evidence={"last_output": said}) for rank in (0, 1)]
    judgement = judge(*ended, world_size=3)
    assert blamed(judgement) == [(2, None, "rank")]
    assert (
        "Rank 2 ended before init_process_group: FileNotFoundError: part-02.txt (train.py:5)"
        in judgement.verdict.summary
    )
    # AND what tells of another rank's end is no reason
    lost = [
        replace(each, last_output=said.replace("FileNotFoundError", "RuntimeError: Connection closed"))
        for each in ended
    ]
    assert judge(*lost, world_size=3).verdict.cause != "rank-died-before-init"


def test_an_error_in_the_output_of_one_that_was_killed_may_be_of_another_process() -> None:
    verdict = judge(starting(0), dead_before(1, -9, evidence={"last_output": "ValueError: no such key\n"})).verdict
    assert "killed by SIGKILL" in verdict.summary
    assert "ValueError" not in verdict.summary
