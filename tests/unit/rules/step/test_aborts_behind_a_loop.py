"""Ranks that their backend aborted behind a loop that they had left: `early-exit`, `uneven-steps`, no mismatch."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.job import blamed, judge
from tests.unit.job import told as said
from tests.unit.rules.step.aborts import EXTRA, calls, dead, drew, lost


def test_a_rank_that_its_backend_ended_behind_its_loop_had_left_it() -> None:
    """Trainer's last gather met the gather of the next batch, and gloo aborted the rank that had stopped early."""
    stopped = drew(dead(1, calls(6)), 6, left=True, dtype="Long")
    judgement = judge(drew(lost(0, calls(6)), 7, left=False), replace(stopped, rank=1))
    assert said(judgement)[0] == "early-exit"
    assert [rank for rank, _, _ in blamed(judgement)] == [1]


def test_calls_that_were_paired_after_an_uneven_epoch_are_its_consequence() -> None:
    short = drew(dead(1, calls(6)), 5, 22, left=False, dtype="Long")
    judgement = judge(drew(lost(0, calls(6)), 5, 30, left=False), short)
    assert said(judgement)[0] == "uneven-steps"
    assert [rank for rank, _, _ in blamed(judgement)] == [1]


def test_types_that_differ_within_one_turn_stay_a_mismatch() -> None:
    judgement = judge(drew(lost(0, calls(6)), 7, left=False), drew(dead(1, calls(6)), 7, left=False, dtype="Long"))
    assert said(judgement)[0] == "collective-mismatch"


def test_a_call_new_to_all_behind_a_loop_that_the_others_are_in_is_no_extra_one() -> None:
    """The rank that left its loop met backward of the others, which their launcher ended: no stack tells of them."""
    short = drew(dead(2, calls(6, EXTRA)), 6, left=True)
    others = [drew(dead(number, calls(6), -15, inside=False), 7, left=False) for number in (0, 1)]
    judgement = judge(*others, short)
    assert said(judgement)[0] == "early-exit", judgement.verdict.summary
    assert [rank for rank, _, _ in blamed(judgement)] == [2]
