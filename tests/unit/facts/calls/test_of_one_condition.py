"""Whether two calls are the two ways of one condition of the source."""

from __future__ import annotations

import pytest

from hangwatch.facts.call_site import Site
from hangwatch.facts.calls.skip_paths import of_one_condition
from hangwatch.facts.case import Case
from hangwatch.model import Bypass, CallSite, Frame
from tests.unit.job import rank, snapshot

FILE = "/home/ann/train.py"
ONE, OTHER = 40, 44


def _frame(line: int) -> Frame:
    return Frame(FILE, line, "hook")


def _way(line: int, text: str) -> Bypass:
    return Bypass(_frame(line), text, asks="value")


@pytest.mark.parametrize(
    ("past_one", "past_other", "told"),
    [
        ([_way(39, "if sparse")], [_way(39, "if not sparse")], True),
        ([_way(39, "if small")], [_way(ONE, "if small: return")], True),
        ([_way(ONE + 1, "if bad: continue")], [_way(ONE + 1, "if bad: continue")], False),
        ([_way(39, "if sparse")], [], False),
    ],
    ids=["if and else", "a return that makes the one", "a turn without both", "one of them is reached by all"],
)
def test_a_condition_that_leads_to_either_call(past_one: list[Bypass], past_other: list[Bypass], told: bool) -> None:
    ways = {ONE: past_one, OTHER: past_other}
    sites = tuple(CallSite((_frame(line),), tuple(found)) for line, found in ways.items())
    case = Case(snapshot(rank(0), rank(1), call_sites=sites))
    one, other = (Site("all_reduce", ((FILE, line),), (FILE, "hook", line)) for line in ways)
    assert of_one_condition(case, one, other) is told
    assert of_one_condition(case, other, one) is told
