"""Calls that a destructor made are told as such: the line at which it ran says nothing of the call."""

from __future__ import annotations

import pytest

from hangwatch.model import Collective, Frame
from tests.unit.job import C10D, SCRIPT, blamed, judge, rank, told
from tests.unit.rules.step.aborts import MODULE, TRACE, calls, dead, lost

IN_CALL = Frame(C10D, 3252, "all_reduce")
DELETES, SENDS = Frame(SCRIPT, 15, "__del__"), Frame(SCRIPT, 12, "close")
COLLECTS, UNRELATED = Frame(SCRIPT, 31, "main"), Frame(SCRIPT, 35, "main")


def _stuck(*own: Frame) -> tuple[str, str]:
    """Rank 1 is alone in an all_reduce by these lines, while the others wait in a barrier."""
    waits = (Frame(C10D, 4000, "barrier"), Frame(SCRIPT, 38, "main"), MODULE)
    alone = (IN_CALL, *own, MODULE)
    ranks = []
    for number in range(3):
        stack = alone if number == 1 else waits
        op = "all_reduce" if number == 1 else "barrier"
        call = Collective("0", 4, op, ((1,),), ("Float",), frames=stack, thread_name="MainThread")
        ranks.append(rank(number, stack, issued=4, completed=3, world_size=3, calls=(call,), open_calls=(call,)))
    verdict = judge(*ranks).verdict
    return verdict.summary, verdict.fix


@pytest.mark.parametrize("inner", [(DELETES,), (SENDS, DELETES)])
def test_the_summary_says_where_it_ran_and_why(inner: tuple[Frame, ...]) -> None:
    summary, fix = _stuck(*inner, UNRELATED)
    assert summary.endswith(
        "`__del__` (train.py:15) made the call of rank 1: it ran at train.py:35, by the garbage collector or as the"
        " last reference went."
    )
    assert "make no collective in `__del__`" in fix


def test_of_other_calls_nothing_is_said() -> None:
    summary, fix = _stuck(SENDS, UNRELATED)
    assert "__del__" not in summary + fix


def test_the_rank_that_left_the_call_out_is_told_with_one_that_waits_in_it() -> None:
    usual, missed = (DELETES, COLLECTS, MODULE), (Frame(SCRIPT, 34, "main"), MODULE)
    ranks = []
    for number in range(3):
        path = missed if number == 1 else usual
        made = [Collective("0", seq, "all_reduce", ((1,),), ("Float",), frames=(IN_CALL, *usual)) for seq in (1, 2)]
        last = Collective("0", 3, "all_reduce", ((1,),), ("Float",), frames=(IN_CALL, *path))
        stack = (IN_CALL, *path)
        ranks.append(rank(number, stack, issued=3, completed=2, world_size=3, calls=(*made, last), open_calls=(last,)))
    verdict = judge(*ranks).verdict
    if verdict.cause in ("skipped-collective", "collective-mismatch"):
        assert "`__del__` (train.py:15) made the call of rank" in verdict.summary


def test_after_an_abort_the_place_is_not_called_new_where_others_have_called_in_that_destructor() -> None:
    usual, extra = (DELETES, COLLECTS, MODULE), (DELETES, UNRELATED, MODULE)
    trace = TRACE.replace("line 27 in main", f'line 15 in __del__\n  File "{SCRIPT}", line 35 in main')
    judgement = judge(lost(0, calls(6, usual, site=usual)), dead(1, calls(6, extra, site=usual), crash_trace=trace))
    assert told(judgement)[0] == "rank-zero-only-collective"
    assert blamed(judgement) == [(1, 101, "rank")]
    summary = judgement.verdict.summary
    assert "no rank had ever called a collective from there" not in summary
    assert "`__del__`, which makes it, had not run at that point on any rank" in summary
