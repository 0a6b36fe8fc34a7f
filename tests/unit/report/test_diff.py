"""The ranks' diff as text, and in the page of an incident."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.model import DiffCall, Frame
from hangwatch.report import diff, html
from tests import examples

TRAINER = Frame("/site-packages/trainer/strategy.py", 9, "reduce")
CALL = DiffCall("all_reduce", "0", Frame("/home/ann/train.py", 71, ""), times=2)


def test_a_call_is_told_with_its_place_and_whether_a_rank_waits_in_it() -> None:
    assert diff.told(CALL) == "all_reduce x2 (train.py:71)"
    outer = Frame("/home/ann/fit.py", 90, "")
    assert diff.told(replace(CALL, times=1, via=(outer,), open=True)) == (
        "all_reduce (train.py:71, below fit.py:90), waiting"
    )
    assert diff.told(None) == "-"


def test_a_call_of_a_framework_is_told_with_its_function_and_the_users_line() -> None:
    assert diff.told(replace(CALL, caller=TRAINER)) == "all_reduce x2 (reduce, strategy.py:9, below train.py:71)"
    assert diff.told(replace(CALL, where=None, caller=TRAINER)) == "all_reduce x2 (reduce, strategy.py:9)"


def test_the_terminal_has_a_column_for_each_group_of_equal_ranks() -> None:
    title, head, missing, extra = diff.render(examples.uneven_steps()).splitlines()
    assert title == "  epoch 0, batch 250 (step 250)"
    assert head.split() == ["ranks", "0-2", "rank", "3"]
    gradients = "gradients x2 (backward, accelerator.py:204, below train.py:71), waiting"
    assert missing == (
        f"    {gradients}  -                               "
        "<- missing on rank 3, which made this call in 7 earlier iterations"
    )
    assert extra == (
        f"    {'-'.ljust(len(gradients))}  barrier (train.py:88), waiting  <- only rank 3: no other rank was ever here"
    )


def test_the_page_has_the_same_rows() -> None:
    page = html.render(examples.uneven_steps())
    for part in ("backward, accelerator.py:204, below train.py:71", "only rank 3: no other rank was ever here"):
        assert part in page
