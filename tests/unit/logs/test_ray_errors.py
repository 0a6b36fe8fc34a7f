"""Errors of Ray's workers."""

from __future__ import annotations

from pathlib import Path

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
