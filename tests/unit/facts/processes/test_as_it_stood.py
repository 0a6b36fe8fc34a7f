"""The job as its ranks stood while they waited, where a timeout ended it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.processes.as_it_stood import as_it_stood, by_a_timeout
from hangwatch.model import (
    Collective,
    Collectives,
    ExceptionFacts,
    Frame,
    GroupHead,
    LoaderFacts,
    Phase,
    RankEvidence,
    StepEntry,
    ThreadStack,
)
from tests.unit.job import C10D, IN_CODE, NOW, SCRIPT, TORCH, blamed, frames, gone, judge, process, rank, snapshot, told
from tests.unit.rules.step.aborts import WATCHDOG

REDUCE = frames((C10D, 3252, "all_reduce"))
GATHER = (Frame(C10D, 4394, "all_gather_single"), Frame(SCRIPT, 77, "save"))
GLOO_TIMEOUT = "[unbound_buffer.cc:79] Timed out waiting 20000ms for recv operation to complete"
WRONG_SIZE = "[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. Received data size doesn't match"


def _ended(number: int, code: int, issued: int, backend: str = "nccl", output: str = "") -> RankEvidence:
    """A rank of three whose process has ended in its call number `issued`; its board is what is left of it."""
    call = Collective("0", issued, "all_reduce", frames=REDUCE, at=NOW - 40, step=5)
    found = gone(number, code, Phase.STEP, calls=(call,), world_size=3, evidence={"last_output": output})
    return _counted(found, issued, issued - 1, backend)


def _counted(found: RankEvidence, issued: int, completed: int, backend: str) -> RankEvidence:
    heads = (GroupHead("0", (0, 1, 2), "", backend, issued, completed),)
    assert found.reading is not None
    return replace(found, reading=replace(found.reading, heads=heads), collectives=Collectives(heads))


def _gave_up(number: int) -> RankEvidence:
    """Of gloo: the timeout is an error in Python, and takes the rank to the end of its program."""
    found = _ended(number, 1, 7, "gloo")
    assert found.reading is not None
    error = ExceptionFacts("RuntimeError", GLOO_TIMEOUT, REDUCE, at=NOW - 11)
    return replace(found, reading=replace(found.reading, exception=error, phase=Phase.FINALIZING))


def _in_its_code(backend: str) -> RankEvidence:
    return _counted(rank(2, IN_CODE, world_size=3), 6, 6, backend)


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_what_kept_the_others_waiting_is_told_of_the_job_that_has_ended(backend: str) -> None:
    """WHEN the watchdog of NCCL aborts the ranks that wait, or gloo's call gives up."""
    waiting = (
        [_ended(number, -6, 7, output=WATCHDOG.format(rank=number)) for number in (0, 1)]
        if backend == "nccl"
        else [_gave_up(0), _gave_up(1)]
    )
    judgement = judge(*waiting, _in_its_code(backend))
    assert told(judgement) == ("user-code-blocked", "likely", "failed")
    assert [number for number, _, _ in blamed(judgement)] == [2]
    assert judgement.verdict.victims == (0, 1)
    assert " Then rank 0 " in judgement.verdict.summary
    assert any(sentence.startswith("rank 1 ") for sentence in judgement.verdict.evidence)


def test_the_ranks_wait_in_the_calls_that_they_had_made_last() -> None:
    case = as_it_stood(Case(snapshot(_gave_up(0), _gave_up(1), _in_its_code("gloo"))))
    assert case is not None
    assert sorted(case.blocked) == [0, 1]
    assert case.blocked[0].where == REDUCE[1]
    assert not case.any_rank_failed
    assert case.awaited() == {2}


def test_a_rank_that_its_launcher_ended_in_no_call_stands_nowhere() -> None:
    """Nothing says where it was: its last call may be long over."""
    aborted = _ended(0, -6, 7, output=WATCHDOG.format(rank=0))
    found = as_it_stood(Case(snapshot(aborted, _ended(1, -15, 6))))
    assert found is not None
    assert [len(view.evidence.stacks) for view in found] == [1, 0]


def test_where_a_rank_was_killed_nothing_is_taken_back() -> None:
    killed = replace(_ended(1, 1, 6), process=process(4001, "X", exit_code=-9))
    assert as_it_stood(Case(snapshot(_gave_up(0), killed, _in_its_code("gloo")))) is None


def test_a_rank_in_its_own_code_did_not_make_another_ones_message_too_long() -> None:
    """Only a timeout is of the waiting itself: what a rank computed explains no message of another size."""
    aborted = _ended(1, -6, 7, "gloo", WRONG_SIZE)
    judgement = judge(_gave_up(0), aborted, _in_its_code("gloo"))
    assert told(judgement) == ("undetermined", "undetermined", "failed")
    assert by_a_timeout(Case(snapshot(_gave_up(0), _gave_up(1), _in_its_code("gloo"))))
    assert not by_a_timeout(Case(snapshot(_gave_up(0), aborted, _in_its_code("gloo"))))


def test_a_job_that_waits_is_as_it_is() -> None:
    waits = _counted(rank(0, REDUCE, world_size=3), 7, 6, "gloo")
    assert as_it_stood(Case(snapshot(waits, _in_its_code("gloo")))) is None


def test_what_was_sampled_once_is_not_said_to_agree() -> None:
    once = replace(_in_its_code("gloo"), earlier_stacks=())
    evidence = judge(_gave_up(0), _gave_up(1), once, sampled_twice=False).verdict.evidence
    assert not [sentence for sentence in evidence if "two samples" in sentence and "agree" in sentence]


def test_a_rank_that_still_moves_is_slow_and_not_stuck() -> None:
    moves = replace(_in_its_code("gloo"), moved=True)
    summary = judge(_gave_up(0), _gave_up(1), moves).verdict.summary
    assert "is still in" in summary
    assert "stuck" not in summary


def test_the_loop_that_only_the_error_ended_has_not_ended() -> None:
    ended, drawing = LoaderFacts(0, 8, 1, 8, exhausted=True), LoaderFacts(1, 8, 2, 1, left=True)
    drawing = replace(drawing, drawn_per_epoch=(8, 8, 1), exhausted_per_epoch=(True, True, False))
    failed = _gave_up(0)
    assert failed.reading is not None
    failed = replace(failed, reading=replace(failed.reading, loaders=(ended, drawing)))
    case = as_it_stood(Case(snapshot(failed, _gave_up(1), _in_its_code("gloo"))))
    assert case is not None
    reading = case.ranks[0].reading
    assert reading is not None
    assert reading.phase is Phase.STEP
    assert reading.loaders == (
        ended,
        replace(drawing, left=False, drawn_per_epoch=(8, 8), exhausted_per_epoch=(True, True)),
    )


def test_a_rank_that_was_aborted_had_left_the_loop_by_itself() -> None:
    loader = LoaderFacts(0, 8, 2, 1, left=True)
    aborted = _ended(0, -6, 7, output=WATCHDOG.format(rank=0))
    assert aborted.reading is not None
    aborted = replace(aborted, reading=replace(aborted.reading, phase=Phase.BETWEEN, loaders=(loader,)))
    case = as_it_stood(Case(snapshot(aborted, _ended(1, -15, 6))))
    assert case is not None
    reading = case.ranks[0].reading
    assert reading is not None
    assert (reading.phase, reading.loaders) == (Phase.BETWEEN, (loader,))


def test_the_call_in_which_a_connection_broke_counts() -> None:
    lost = _gave_up(0)
    assert lost.reading is not None
    assert lost.reading.exception is not None
    error = replace(lost.reading.exception, message="[pair.cc:547] Connection closed by peer [10.0.0.1]:20001")
    heads = (replace(lost.reading.heads[0], completed=7),)
    lost = replace(lost, reading=replace(lost.reading, exception=error, heads=heads), collectives=Collectives(heads))
    case = as_it_stood(Case(snapshot(lost, _ended(1, -6, 7, "gloo", WRONG_SIZE))))
    assert case is not None
    assert [head.issued for head in case.ranks[0].evidence.collectives.heads] == [8]


def test_an_error_that_the_rank_caught_is_kept() -> None:
    caught = ExceptionFacts("ValueError", "bad batch", REDUCE, at=NOW - 50, fatal=False)
    aborted = _ended(0, -6, 7, "gloo", WRONG_SIZE)
    assert aborted.reading is not None
    aborted = replace(aborted, reading=replace(aborted.reading, exception=caught))
    case = as_it_stood(Case(snapshot(aborted, _ended(1, -15, 6, "gloo"))))
    assert case is not None
    assert case.ranks[0].exception == caught


def test_a_rank_that_gloo_aborts_at_the_end_of_its_program_has_its_launcher_end_the_others() -> None:
    done = gone(1, -6, Phase.FINALIZING, world_size=2)
    case = as_it_stood(Case(snapshot(_ended(0, -15, 7, "gloo"), done)))
    assert case is not None
    assert not case.any_rank_failed
    assert as_it_stood(Case(snapshot(_ended(0, -15, 7, "gloo"), _ended(1, -15, 7, "gloo")))) is None  # from outside


@pytest.mark.parametrize(("stood", "completed"), [(REDUCE, 6), (GATHER, 7)])
def test_all_before_its_last_call_was_complete_and_that_too_of_a_rank_that_stood_elsewhere(
    stood: tuple[Frame, ...], completed: int
) -> None:
    """GIVEN a rank that was gone before anybody could ask what was complete."""
    lost = _counted(_gave_up(0), 7, -1, "gloo")
    assert lost.reading is not None
    assert lost.reading.exception is not None
    lost = replace(lost, reading=replace(lost.reading, exception=replace(lost.reading.exception, frames=stood)))
    case = as_it_stood(Case(snapshot(lost, _ended(1, -15, 7, "gloo"))))
    assert case is not None
    assert [head.completed for head in case.ranks[0].evidence.collectives.heads] == [completed]


def test_of_calls_made_at_once_those_before_the_awaited_one_were_complete() -> None:
    """GIVEN a rank that gathers weights by three calls at once, and waits for the first of them."""
    lost = _counted(_gave_up(0), 9, -1, "gloo")
    assert lost.reading is not None
    waits = (Frame(f"{TORCH}/distributed/_functional_collectives.py", 140, "wait_tensor"), *GATHER[1:])
    stack = ThreadStack(lost.pid or 0, "MainThread", waits, main=True)
    waited = Collective("0", 7, "all_gather", frames=GATHER)
    lost = replace(lost, stacks=(stack,), reading=replace(lost.reading, open_calls=(waited,)))
    case = as_it_stood(Case(snapshot(lost, _ended(1, -15, 7, "gloo"))))
    assert case is not None
    assert [head.completed for head in case.ranks[0].evidence.collectives.heads] == [6]


@pytest.mark.parametrize(("backend", "completed"), [("gloo", 6), ("nccl", 1)])
def test_gradients_of_earlier_steps_were_complete_where_no_device_runs_behind(backend: str, completed: int) -> None:
    """GIVEN a rank that failed in its backward, and whose ticker had last looked in its first step"""
    lost = _counted(_gave_up(0), 8, 1, backend)
    engine = (Frame(f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward"), *GATHER[1:])
    assert lost.reading is not None
    assert lost.reading.exception is not None
    begun = (StepEntry(5, None, None, None, NOW - 40, {"0": 6}),)
    error = replace(lost.reading.exception, frames=engine)
    lost = replace(lost, reading=replace(lost.reading, steps=begun, exception=error))
    case = as_it_stood(Case(snapshot(lost, _ended(1, -15, 8, backend))))
    # THEN what it had issued before its last step was complete, on gloo
    assert case is not None
    assert [head.completed for head in case.ranks[0].evidence.collectives.heads] == [completed]
