"""What Slurm says of tasks, and what tasks say in lines with srun's label."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs import Logs, assess, completed, nothing_of_use, read
from hangwatch.model import Judgement
from hangwatch.queues import Queues
from tests.unit.logs.lines import gave_up, judged

TRACEBACK = ["Traceback (most recent call last):", '  File "/u/train.py", line 73, in main', "RuntimeError: bad shape"]
CANCELLED = "slurmstepd: error: *** STEP 8.0 ON n0 CANCELLED AT 2025-11-27T03:10:44 ***"
ENDED = "srun: error: n1: task 5: Exited with exit code 1"
LAUNCHED = "[2025-11-27 03:00:00,000] torch.distributed.run: [WARNING] master_addr is only used for static rdzv"


def told(tmp_path: Path, *lines: str) -> Judgement:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    return found


def of_task(number: int, lines: list[str]) -> list[str]:
    return [f"{number}: {line}" for line in lines]


@pytest.mark.parametrize(
    "behind", [[], ["srun: Terminating StepId=8.0", CANCELLED, "srun: error: n0: tasks 0-3: Killed"]]
)
def test_a_traceback_behind_the_label_of_a_task_is_that_of_its_rank(tmp_path: Path, behind: list[str]) -> None:
    both = zip(of_task(5, TRACEBACK), of_task(3, ["step 1", "step 2", "step 3"]), strict=True)
    mixed = [line for pair in both for line in pair]
    found = told(tmp_path, *mixed, ENDED, *behind).verdict
    assert (found.cause, [(each.rank, each.host) for each in found.culprits]) == ("exception-on-one-rank", [(5, "n1")])
    assert found.summary == "Rank 5 failed with exit code 1 (train.py:73): RuntimeError: bad shape."
    assert any("task numbers of Slurm are taken as ranks" in said for said in found.evidence)


def test_an_exception_that_a_task_caught_is_no_failure(tmp_path: Path) -> None:
    path, logs = tmp_path / "slurm-8.out", Logs()
    path.write_text("\n".join(["0: step 20", "1: step 20", *of_task(2, TRACEBACK), "2: step 20", "2: done"]))
    assert not read(path, logs)
    assert assess(completed(Queues(), logs), logs).judgement is None
    assert "a traceback of rank 2 is in it" in nothing_of_use([path], logs)[1]


@pytest.mark.parametrize(
    ("line", "signal"),
    [
        ("srun: error: n1: task 5: Out Of Memory", 9),
        ("srun: error: n1: task 5: Killed", 9),
        ("srun: error: n1: task 5: Segmentation fault (core dumped)", 11),
        ("srun: error: n1: task 5: Exited with exit code 137", 9),
    ],
)
def test_a_task_that_a_signal_ended_is_a_rank_that_died(tmp_path: Path, line: str, signal: int) -> None:
    found = told(tmp_path, line, CANCELLED, "srun: error: n1: tasks 4,6-7: Terminated").verdict
    assert (found.cause, [each.rank for each in found.culprits]) == ("rank-died", [5])
    assert f"died by signal {signal}" in found.summary


@pytest.mark.parametrize(
    "event",
    [
        "slurmstepd: error: Detected 1 oom_kill event in StepId=8.0. Some of the step tasks have been OOM Killed.",
        "slurmstepd: error: Detected 2 oom-kill event(s) in step 8.0 cgroup.",
    ],
)
def test_a_step_that_ran_out_of_memory_tells_why_a_task_was_killed(tmp_path: Path, event: str) -> None:
    alone = told(tmp_path, event, CANCELLED).verdict
    assert (
        alone.summary
        == "Slurm says that a process of step 8.0 was killed for lack of memory; no line tells of which rank."
    )
    assert not alone.culprits
    found = told(tmp_path, event, "srun: error: n1: task 5: Killed").verdict
    assert [each.rank for each in found.culprits] == [5]
    assert "lack of memory" in found.summary
    assert "more memory" in found.fix


def test_a_task_that_ends_when_the_step_is_being_ended_is_a_victim(tmp_path: Path) -> None:
    found = told(tmp_path, CANCELLED, "srun: error: n0: tasks 0-3: Killed", ENDED)
    assert found.verdict.summary == "Slurm cancelled the step: these logs blame no rank."


def test_a_task_that_is_a_launcher_is_no_rank(tmp_path: Path) -> None:
    killed = "srun: error: n1: task 1: Out Of Memory"
    found = told(tmp_path, f"0: {LAUNCHED}", killed).verdict
    assert found.culprits[0].rank is None
    assert found.summary == "Task 1 of Slurm on n1 died by signal 9: srun says: Out Of Memory."
    ended = told(
        tmp_path, f"0: {LAUNCHED}", *of_task(1, TRACEBACK), gave_up(0, 7), killed.replace("Out Of Memory", "Killed")
    )
    assert ended.verdict.culprits[0].rank is None


def test_the_lines_of_a_task_count_under_its_rank(tmp_path: Path) -> None:
    found = told(
        tmp_path, "3: \x1b[31mstart rebuilding\x1b[0m", "0: step 1", *of_task(5, TRACEBACK), ENDED, gave_up(0, 7)
    )
    assert found.verdict.victims == (0,)


def test_a_job_that_slurm_has_started_anew_in_the_same_file_goes_on(tmp_path: Path) -> None:
    requeued = f"{CANCELLED[:-4]} DUE TO PREEMPTION ***"
    path, logs = tmp_path / "slurm-8.out", Logs()
    path.write_text("\n".join(["0: step 1", requeued, ENDED, "0: resuming from step 1", "0: step 2", "0: step 3"]))
    assert read(path, logs)
    found = assess(completed(Queues(), logs), logs)
    assert found.judgement is None
    assert "the attempt before the last restart failed: Slurm cancelled the job (preemption)" in found.sentences[1]
    # BUT what a buffer held back behind another end is no new start
    assert told(tmp_path, "0: step 1", CANCELLED, "0: step 2", "0: step 3").status == "failed"


def test_a_task_alone_on_its_host_may_have_started_several_ranks(tmp_path: Path) -> None:
    failed = "srun: error: n1: task 1: Exited with exit code 1"
    found = told(tmp_path, *TRACEBACK, failed, *(gave_up(rank, 7) for rank in range(8, 16))).verdict
    assert [each.rank for each in found.culprits] == [None]
    assert found.summary.startswith("Task 1 of Slurm on n1 failed with exit code 1 (train.py:73)")
    # BUT where several tasks are on one host, each of them is a rank
    others = "srun: error: n1: tasks 0,2-7: Terminated"
    assert [each.rank for each in told(tmp_path, failed, others, gave_up(15, 7)).verdict.culprits] == [1]
    # AND processes that one task has started are named by their own launcher
    spawned = "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with exit code 3"
    assert told(tmp_path, failed, others, spawned).verdict.summary.startswith("Local rank 2 failed with exit code 3")


@pytest.mark.parametrize("numbers", ["-", "0-3-5", ",", "3-"])
def test_numbers_of_tasks_that_are_none_are_not_read(tmp_path: Path, numbers: str) -> None:
    logs, path = Logs(), tmp_path / "slurm.out"
    path.write_text(f"srun: error: n1: tasks {numbers}: Killed\n")
    assert not read(path, logs)


def test_numbers_that_a_program_writes_before_its_lines_are_no_tasks(tmp_path: Path) -> None:
    steps = [f"{step}: loss 3.{step}" for step in range(4)]
    torch = [gave_up(rank, 17) for rank in range(4)]
    found = told(tmp_path, *steps, *of_task(4, TRACEBACK), *(f"{step}: loss 3" for step in range(5, 9)), *torch)
    assert found.verdict.cause != "exception-on-one-rank"
    assert {*found.verdict.victims} | {each.rank for each in found.verdict.culprits} <= {0, 1, 2, 3}


def test_numbers_with_gaps_are_no_tasks_where_no_line_of_srun_names_one(tmp_path: Path) -> None:
    path, logs = tmp_path / "train.log", Logs()
    path.write_text("\n".join(["10: loss 3", *of_task(20, TRACEBACK), "30: loss 2"]))
    assert not read(path, logs)
    assert "no line tells whether that ended a process" in nothing_of_use([path], logs)[1]
