"""A rank that leaves the order of its own sends and receives, with no steps to count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.own_order import left_own_order
from hangwatch.model import Collective, Frame, RankEvidence
from tests.unit.job import rank, snapshot
from tests.unit.simulator import SCRIPT

RECEIVE, SEND, OTHER = ("recv", 0, 8), ("send", 0, 9), ("send", 1, 9)
TURN = [("recv", 1, 8), RECEIVE, SEND, OTHER]


def made(calls: list[tuple[str, int, int]]) -> Case:
    """A case in which rank 2 has made these calls."""
    recorded = tuple(
        Collective("0", number, op, peer=peer, frames=(Frame(SCRIPT, line, "exchange"),))
        for number, (op, peer, line) in enumerate(calls, 1)
    )
    entry: RankEvidence = rank(2, world_size=3)
    assert entry.reading is not None
    entry = replace(entry, reading=replace(entry.reading, calls=recorded))
    return Case(snapshot(entry))


@pytest.mark.parametrize(
    ("calls", "left"),
    [
        pytest.param([*TURN * 8, *TURN[:2]], False, id="in the middle of a turn like all before"),
        pytest.param([*TURN * 8, *TURN[:2], RECEIVE], True, id="a receive too many"),
        pytest.param([*TURN * 8, *TURN[:2], RECEIVE, SEND, OTHER, *TURN[:2]], True, id="a turn ago"),
        pytest.param([*TURN * 8, *TURN[:2], OTHER], True, id="a send left out"),
        pytest.param([*TURN * 8, *TURN[:2], RECEIVE, SEND, OTHER, *TURN * 6], False, id="long served"),
        pytest.param([*TURN * 8, *TURN[:2], ("send", 0, 99)], False, id="a new call"),
        pytest.param([*TURN * 4, *TURN[:2], RECEIVE], None, id="few turns"),
        pytest.param([], None, id="nothing on record"),
    ],
)
def test_the_order_of_a_ranks_own_calls(calls: list[tuple[str, int, int]], left: bool | None) -> None:
    assert left_own_order(made(calls), 2, {0, 1}) is left


def test_calls_with_ranks_that_have_no_part_in_it_are_not_asked() -> None:
    assert left_own_order(made([*TURN * 8, *TURN[:2], RECEIVE]), 2, {5}) is False
