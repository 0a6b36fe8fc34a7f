"""Stacks in logs: whose they are, and whether their rank went on behind them."""

from __future__ import annotations

from pathlib import Path

from hangwatch.logs import Logs, assess, completed, read
from hangwatch.logs.task_lines import placed
from hangwatch.queues import Queues

DUMP = [
    "Timeout (0:05:00)!",
    "Thread 0x00007f1a9e8f7740 (most recent call first):",
    '  File "/w/train.py", line 97 in train',
    '  File "/w/train.py", line 240 in <module>',
]
STEPS = [f"step {number}" for number in range(5)]


def logs_of(path: Path, lines: list[str]) -> Logs:
    logs = Logs()
    path.write_text("\n".join(lines) + "\n")
    read(path, logs)
    return logs


def test_the_rank_of_a_stack_is_told_by_the_file_or_by_each_line(tmp_path: Path) -> None:
    for name, prefix in (("fault_rank3.log", ""), ("job.log", "[rank3]: ")):
        logs = logs_of(tmp_path / name, [*STEPS, *(prefix + line for line in DUMP)])
        (_, (stack,)) = logs.stacks[3]
        assert (stack.main, stack.frames[0].line) == (True, 97)
        assert logs.files


def test_tasks_of_slurm_are_ranks_there_too(tmp_path: Path) -> None:
    both = zip([f"3: {line}" for line in DUMP], [f"1: {line}" for line in DUMP], strict=True)
    logs = placed(logs_of(tmp_path / "slurm-1.out", [line for pair in both for line in pair]))
    assert logs.stacks.keys() == {1, 3}


def test_a_rank_that_goes_on_behind_its_stack_has_moved(tmp_path: Path) -> None:
    assert not logs_of(tmp_path / "fault_rank3.log", [*STEPS, *DUMP, *STEPS]).stacks


def test_the_stack_of_a_crash_is_no_stack_of_a_wait(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "fault_rank3.log", ["Fatal Python error: Segmentation fault", "", *DUMP[1:]])
    assert not logs.stacks
    assert logs.raised[3].where is not None


def test_stacks_of_no_known_rank_are_told_of(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "stacks.txt", DUMP)
    assert "no line tells their ranks" in assess(completed(Queues(), logs), logs).sentences[0]
