"""`loader-worker-died`: a loader worker died."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import ExceptionFacts, Frame, LoaderFacts, Phase, RankEvidence, StepEntry
from tests.unit.job import (
    CONNECTION,
    IDLE,
    IN_BACKWARD,
    IN_BARRIER,
    LOADER,
    NOW,
    USER,
    blamed,
    feeding,
    gone,
    judge,
    rank,
    told,
    worker,
)
from tests.unit.rules.data.loaders import WAITING, failing, fed


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


@pytest.mark.parametrize(("pid", "known"), [(9, True), (8, False)])
def test_the_signal_is_in_an_error_that_torch_has_caught_itself(pid: int, known: bool) -> None:
    entry = failing(0, "DataLoader worker (pid(s) 9) exited unexpectedly")
    assert entry.reading is not None
    first = ExceptionFacts("RuntimeError", f"DataLoader worker (pid {pid}) is killed by signal: Killed. ", ())
    judgement = judge(replace(entry, reading=replace(entry.reading, caught=(first,))))
    assert ("killed by signal Killed" in judgement.verdict.summary) is known
    assert known or "it exited unexpectedly" in judgement.verdict.summary


def test_for_want_of_memory() -> None:
    judgement = judge(failing(0, "DataLoader worker (pid 4711) is killed by signal: Killed."), node={"oom_kills": 1})
    assert "killed by signal Killed, out of memory" in judgement.verdict.summary


def test_others_that_still_wait_for_a_rank_that_is_long_gone() -> None:
    judgement = judge(failing(0, "DataLoader worker (pid 4711) is killed by signal: Killed."), WAITING)
    assert told(judgement) == ("loader-worker-died", "proven", "hung")


def test_a_worker_that_died_unnoticed() -> None:
    judgement = judge(fed(0, worker(0, (), state="Z", exit_code=-9), worker(1, IDLE)), WAITING)
    assert told(judgement)[:2] == ("loader-worker-died", "proven")
    assert "killed by SIGKILL" in judgement.verdict.summary


def test_a_worker_that_ended_as_it_should_has_no_more_data_of_its_share() -> None:
    """One that the loop still counts on leads to an error of torch's own within 5 s."""
    judgement = judge(fed(0, worker(0, (), state="Z", exit_code=0), worker(1, IDLE)), WAITING)
    assert judgement.verdict.cause != "loader-worker-died"


def test_workers_of_an_epoch_that_is_over_may_go() -> None:
    over = fed(0, worker(0, (), state="X"), loader={"exhausted": True})
    assert judge(over, WAITING).verdict.cause != "loader-worker-died"


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
