"""A helper of the program makes calls for several places: its line is told with the line that called it."""

from __future__ import annotations

from pathlib import Path

from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync, every

LOSS, NORM = (Call("all_reduce", 12, 64, via=caller) for caller in (80, 88))
TURN: list[Step] = [LOSS, NORM, Sync()]
CALLED = "(train.py:12, called from train.py:80)"


def test_the_caller_of_a_helper_is_told_where_a_rank_does_not_come(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(4, TURN * 6, {2: TURN * 5})), tmp_path)
    assert blamed(found) == [2]
    assert f"never enqueued all_reduce 11 of the default group {CALLED}" in found.summary
    assert "all_reduce 10 of the default group (train.py:12, called from train.py:88)" in found.evidence[0]


def test_the_caller_of_a_helper_is_told_where_nothing_completes(tmp_path: Path) -> None:
    found = verdict(JobDumps(every(4, TURN * 6), broken={"world": 9}), tmp_path)
    assert f"all_reduce 9 of the default group {CALLED}" in found.summary


def test_both_callers_are_told_where_calls_do_not_fit(tmp_path: Path) -> None:
    last = (Call("all_reduce", 12, size, via=caller) for size, caller in ((64, 90), (65, 92)))
    usual, own = ([*TURN * 6, call, Sync()] for call in last)
    found = verdict(JobDumps(every(4, usual, {2: own})), tmp_path)
    assert "all_reduce (65 elements, bfloat16) (train.py:12, called from train.py:92)" in found.summary
    assert "all_reduce (64 elements, bfloat16) (train.py:12, called from train.py:90)" in found.summary


def test_of_a_line_that_one_place_calls_no_caller_is_told(tmp_path: Path) -> None:
    turn: list[Step] = [LOSS, Call("all_reduce", 70, 8), Sync()]
    found = verdict(JobDumps(every(4, turn * 6, {2: turn * 5})), tmp_path)
    assert "all_reduce 11 of the default group (train.py:12), for which" in found.summary
