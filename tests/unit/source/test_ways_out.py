"""What stands where a loop can be left."""

from __future__ import annotations

import ast
import textwrap

import pytest

from hangwatch.model import Frame
from hangwatch.source.loops import loop_around
from hangwatch.source.ways_out import with_ways_out

FILE = "/home/ann/train.py"


def told(source: str, line: int) -> list[tuple[int, str]]:
    """The line and the text of each way out of the loop around that line."""
    tree = ast.parse(textwrap.dedent(source).strip("\n"))
    loop = loop_around([(Frame(FILE, line, "fit"), tree)])
    assert loop is not None
    return [(way.where.line, way.text) for way in with_ways_out(loop, {FILE: tree}).ways_out]


def test_a_break_is_told_with_the_condition_right_above_it() -> None:
    source = """
    for batch in loader:
        if batch is not None:
            if guard.requested:
                save()
                break
            step(batch)
    """
    assert told(source, 6) == [(5, "if guard.requested: break")]


def test_the_condition_of_a_while_and_the_other_way_of_an_if() -> None:
    source = """
    def fit(state):
        while state.error > limit:
            if improves(state):
                step(state)
            else:
                return state
    """
    assert told(source, 4) == [(2, "while state.error > limit"), (6, "if not improves(state): return")]


def test_the_loops_around_it_tell_of_their_own_ways_out() -> None:
    source = """
    for epoch in range(40):
        for batch in loader:
            step(batch)
        if patience.over:
            break
    """
    assert told(source, 3) == [(5, "if patience.over: break")]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("break", "break"),
        ("try:\n        step()\n    except ValueError:\n        break", "except ValueError: break"),
        ("match state:\n        case 'stop':\n            break", "case 'stop': break"),
        ("if late:\n        if rank: continue\n        break", "if late: break"),
        ("if not data:\n        raise Empty\n    for x in data:\n        with lock:\n            return", "return"),
    ],
)
def test_only_what_is_right_around_it_is_its_condition(body: str, text: str) -> None:
    source = f"def fit():\n  for batch in loader:\n    {body}\n    step()"
    assert text in [each for _, each in told(source, len(source.splitlines()))]
