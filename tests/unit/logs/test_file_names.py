"""Files whose names have a number, and whose lines do not tell the rank."""

from __future__ import annotations

from pathlib import Path

from hangwatch.logs import Logs, assess, completed, read
from hangwatch.model import Verdict
from hangwatch.queues import Queues
from tests.unit.logs.lines import far, gave_up

CRASH = (
    "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f1a (most recent call first):\n"
    '  File "/w/ops.py", line 12 in fused_norm\n'
)


def told(tmp_path: Path, **texts: str) -> Verdict:
    logs = Logs()
    for name, text in texts.items():
        (tmp_path / f"{name}.log").write_text(text)
        read(tmp_path / f"{name}.log", logs)
    found = assess(completed(Queues(), logs), logs).judgement
    assert found is not None
    return found.verdict


def waiting(rank: int) -> str:
    return f"{gave_up(rank, 31)}\n{far(rank, 31, 31, 30)}\n"


def test_the_number_of_a_file_is_the_rank_where_it_is_so_in_other_files(tmp_path: Path) -> None:
    found = told(tmp_path, r0=waiting(0), r1=waiting(1), r3=CRASH)
    assert (found.cause, [each.rank for each in found.culprits]) == ("rank-died", [3])
    assert found.summary == "Rank 3 crashed (ops.py:12): Fatal Python error: Segmentation fault."


def test_it_is_not_where_another_file_says_otherwise(tmp_path: Path) -> None:
    assert not told(tmp_path, node0=waiting(0), node1=waiting(8), node3=CRASH).culprits
    assert not told(tmp_path, r0=waiting(0), r1=waiting(1), x3=CRASH).culprits
