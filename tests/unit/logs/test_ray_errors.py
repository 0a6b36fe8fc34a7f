"""Errors of Ray's workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs import Logs, read
from hangwatch.model import Verdict
from tests.unit.logs.lines import judged

RANKS = [
    f"(RayTrainWorker pid={880 + rank}, ip=10.0.0.{rank}) Setting up process group: [rank={rank}, world_size=2]"
    for rank in range(2)
]
ERROR = [
    "ray.exceptions.RayTaskError(ZeroDivisionError): ray::_Inner.train() (pid=700, ip=10.0.0.0)",
    "ray.exceptions.RayTaskError(ZeroDivisionError): ray::Worker.get_next() (pid=881, ip=10.0.0.1, actor_id=aa)",
    '  File "/home/mia/stats.py", line 9, in mean',
    "    return s / n",
    "ZeroDivisionError: division by zero",
]


def told(tmp_path: Path, *lines: str) -> Verdict:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    return found.verdict


def test_the_worker_that_raised_is_its_rank_where_a_line_tells_that(tmp_path: Path) -> None:
    found = told(tmp_path, *RANKS, *ERROR)
    assert [each.rank for each in found.culprits] == [1]
    assert found.summary == "Rank 1 raised an exception (stats.py:9): ZeroDivisionError: division by zero."


def test_else_its_process_is_told(tmp_path: Path) -> None:
    found = told(tmp_path, *ERROR)
    assert [(each.rank, each.pid) for each in found.culprits] == [(None, 881)]
    assert found.summary.startswith("A worker of Ray (pid 881) raised an exception (stats.py:9)")


def steps(count: int) -> list[str]:
    return [f"step {step} loss 1" for step in range(count)]


@pytest.mark.parametrize("ranks", [[], RANKS])
def test_an_error_behind_which_the_program_counts_up_was_caught(tmp_path: Path, ranks: list[str]) -> None:
    found = judged(tmp_path, "\n".join([*ranks, *ERROR, *steps(30)]))
    assert found.judgement is None
    assert "no process is known to have failed" in found.sentences[0]
    assert "ZeroDivisionError: division by zero" in found.sentences[1]
    assert told(tmp_path, *ranks, *ERROR, *steps(5)).cause == "exception-on-one-rank"


def test_an_ordinary_line_ends_what_is_told_of_an_error(tmp_path: Path) -> None:
    path, logs = tmp_path / "train.log", Logs()
    path.write_text("\n".join([ERROR[1], "step 0", "retrying after", "KeyError: 'x'"]))
    read(path, logs)
    assert not logs.reaped
    assert not logs.raised


def test_lines_of_other_workers_between_do_not_end_it(tmp_path: Path) -> None:
    found = told(tmp_path, *RANKS, *ERROR[:3], "(RayTrainWorker pid=880, ip=10.0.0.0) step 3", *ERROR[3:])
    assert [each.rank for each in found.culprits] == [1]


def test_the_colours_of_an_error_are_no_label(tmp_path: Path) -> None:
    head = ERROR[1].replace("ray::Worker", "\x1b[36mray::Worker").replace(" (pid", "\x1b[39m (pid")
    assert [each.rank for each in told(tmp_path, *RANKS, head, *ERROR[2:]).culprits] == [1]
