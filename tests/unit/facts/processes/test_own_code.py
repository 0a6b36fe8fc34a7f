"""Ranks that run their own code: what counts as work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.processes.own_code import how_stuck
from hangwatch.judge import diagnose
from hangwatch.model import Collectives, Frame, GroupHead, ProcessEvidence, RankEvidence, Status, ThreadStack
from hangwatch.ranks.view import RankView
from tests.unit.facts.processes.test_standstill import call, host, job
from tests.unit.job import IN_BARRIER, LIB, SCRIPT, frames, judge, process, rank
from tests.unit.rules.step.worlds import stuck


def test_a_process_that_waits_for_a_processor_is_not_idle() -> None:
    snapshot = stuck("compile", state="R", cpu_delta_s=0.04)
    assert diagnose(snapshot).status is Status.WAITING


def test_a_rank_that_gets_little_processor_time_on_a_busy_machine_is_said_to_be_ready_to_run() -> None:
    snapshot = stuck("code", state="R", cpu_delta_s=0.01)
    view = RankView(1, snapshot.ranks[1], sampled_twice=True)
    assert how_stuck(view) == "it is ready to run and gets little processor time"


@pytest.mark.parametrize(("sleeps_s", "told"), [(12.0, "it sleeps, for another 12 s;"), (0.5, "it sleeps;")])
def test_for_how_long_a_rank_will_go_on_sleeping_is_told(sleeps_s: float, told: str) -> None:
    assert told in diagnose(stuck("code", system_call="clock_nanosleep", sleeps_s=sleeps_s)).verdict.summary


@pytest.mark.parametrize(
    ("cpu_s", "still_s", "status"),
    [(0.2, 35.0, Status.WAITING), (0.2, 200.0, Status.HUNG), (0.01, 35.0, Status.HUNG)],
)
def test_a_rank_that_waits_for_a_thread_of_its_own_which_computes_is_given_time(
    cpu_s: float, still_s: float, status: Status
) -> None:
    lock = (Frame(SCRIPT, 43, "improve"),)
    thread = ThreadStack(9, "feeder", (Frame(SCRIPT, 39, "_advance"),))
    late = rank(
        0,
        lock,
        issued=4,
        completed=4,
        threads=(thread,),
        facts={"private_wait": True, "cpu_delta_s": cpu_s, "system_call": "futex"},
        still_s=still_s,
        patience_s=30.0,
    )
    waits = rank(1, IN_BARRIER, issued=5, completed=4, still_s=still_s, patience_s=30.0)
    judgement = judge(late, waits)
    assert (judgement.verdict.cause, judgement.status) == ("user-code-blocked", status), judgement.verdict.summary
    assert "while its thread 'feeder' is in _advance (train.py:39)" in judgement.verdict.summary


def test_a_rank_that_stands_where_others_wait_for_their_device_is_not_at_fault_beside_one_that_does_not() -> None:
    """GIVEN a rank that waits on its device for a message, which no counter knows WHEN one sleeps THEN that one."""
    item = (Frame(SCRIPT, 16, "main"),)
    waits, unknown = (_nccl(number, issued, item) for number, issued in ((0, 5), (2, 4)))
    sleeps = _nccl(1, 4, (Frame(SCRIPT, 40, "load"),))
    verdict = diagnose(job(waits, sleeps, unknown)).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("user-code-blocked", [1])


def test_ranks_that_all_stand_where_others_wait_for_their_device_are_stuck_in_no_code_of_their_own() -> None:
    item = (Frame(SCRIPT, 16, "main"),)
    ranks = (_nccl(number, issued, item) for number, issued in ((0, 5), (1, 4), (2, 4)))
    verdict = diagnose(job(*ranks)).verdict
    assert verdict.cause != "user-code-blocked", verdict.summary


@pytest.mark.parametrize(("still_s", "status"), [(60.0, Status.WAITING), (200.0, Status.HUNG)])
def test_a_rank_that_spins_where_others_wait_for_their_device_works_no_more_than_they_do(
    still_s: float, status: Status
) -> None:
    """No native frame could be taken, and no counter tells for what ranks 1 and 2 wait."""
    item = (Frame(SCRIPT, 16, "main"),)
    ranks = (_nccl(number, issued, item) for number, issued in ((0, 5), (1, 4), (2, 4)))
    assert diagnose(job(*(replace(each, still_s=still_s) for each in ranks))).status is status


def _nccl(number: int, issued: int, python: tuple[Frame, ...]) -> RankEvidence:
    """Of three ranks, with four calls completed."""
    head = GroupHead("0", (0, 1, 2), backend="nccl", issued=issued, completed=4)
    calls = tuple(call(seq, 0.5, retired=seq < 5) for seq in range(4, issued + 1))
    return replace(
        host(number, call(5, 1.0), native=False, python=python),
        collectives=Collectives((head,), calls, source="flight-recorder"),
    )


def test_a_rank_that_waits_for_a_child_names_it_though_it_has_no_stack_to_show() -> None:
    run = frames((f"{LIB}/selectors.py", 415, "select"), (f"{LIB}/subprocess.py", 2115, "_communicate"))
    facts = process(900, command="score --model m.pt", system_call="accept4", cpu_delta_s=0.0)
    late = rank(0, run, issued=10, completed=10, evidence={"children": (ProcessEvidence("child", facts),)})
    assert how_stuck(RankView(0, late, sampled_twice=True)) == (
        "it waits for its child process 900 (`score --model m.pt`), which is in accept4"
    )


def test_a_pool_whose_processes_wait_for_work_has_lost_the_task() -> None:
    queue = frames(
        (f"{LIB}/multiprocessing/queues.py", 364, "get"), (f"{LIB}/multiprocessing/process.py", 314, "_bootstrap")
    )
    stacks = (ThreadStack(900, "MainThread", queue, main=True),)
    idle = ProcessEvidence("child", process(900, system_call="futex"), stacks, stacks)
    run = frames((f"{LIB}/threading.py", 327, "wait"), (f"{LIB}/multiprocessing/pool.py", 367, "map"))
    late = rank(0, run, issued=10, completed=10, evidence={"children": (idle, idle)}, facts={"private_wait": True})
    assert how_stuck(RankView(0, late, sampled_twice=True)) == (
        "it waits for a result of its 2 child processes, all of which wait for work: a task was lost, as when a process"
        " of a pool dies"
    )


def test_a_rank_that_joins_a_queue_is_told_that_an_item_is_not_reported_as_done() -> None:
    joins = (
        Frame(f"{LIB}/threading.py", 327, "Condition.wait"),
        Frame(f"{LIB}/queue.py", 90, "Queue.join"),
        Frame(SCRIPT, 29, "finish"),
    )
    late = rank(0, joins, issued=4, completed=4, facts={"system_call": "futex"}, still_s=99.0)
    waits = rank(1, IN_BARRIER, issued=5, completed=4, still_s=99.0)
    judgement = judge(late, waits)
    assert "until each item of a queue is reported as done" in judgement.verdict.summary, judgement.verdict.summary
    assert "call task_done() for each item" in judgement.verdict.fix
