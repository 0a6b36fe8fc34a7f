"""A rank that leaves the order of its own sends and receives, with no steps to count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.messages.own_order import has_new_partner, left_own_order
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


NEIGHBOURS = [("send", 0, 9), ("send", 1, 9), ("recv", 0, 9), ("recv", 1, 9)]
DEALT = [("send", 1, 9), ("send", 5, 9), ("recv", 1, 9), ("recv", 5, 9)]


@pytest.mark.parametrize(
    ("calls", "new"),
    [
        pytest.param([*NEIGHBOURS * 8, *DEALT], True, id="new neighbours"),
        pytest.param([*NEIGHBOURS * 8, *DEALT * 9], False, id="long served"),
        pytest.param([*NEIGHBOURS * 8, ("send", 5, 10)], False, id="a new place"),
        pytest.param([*NEIGHBOURS * 8, NEIGHBOURS[2]], False, id="out of order with an old one"),
        pytest.param([*NEIGHBOURS * 2, *DEALT], False, id="few rounds"),
    ],
)
def test_a_partner_that_is_new_at_an_old_place(calls: list[tuple[str, int, int]], new: bool) -> None:
    assert has_new_partner(made(calls), 2) is new
