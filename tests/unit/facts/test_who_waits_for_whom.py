"""`Case.may_wait_for`, and what it keeps from being said of ranks for which no rank waits."""

from __future__ import annotations

import pytest

from hangwatch.judge import Case, diagnose
from tests.unit.simulator import Action, Call, Draw, LoopEnd, Peer, Stall, World, blamed_ranks

TURN: list[Action] = [Draw(), Call(line=12)]


def job() -> World:
    """Rank 1 is stuck; rank 0 waits for a message from it, inside the loop; ranks 2 and 3 have left the loop."""
    waits = [*TURN * 3, Draw(), Peer("recv", 1)]
    stuck = [*TURN * 3, Draw(), Stall(kind="loop")]
    left = [*TURN * 3, Draw(), LoopEnd(), Call("barrier", line=40)]
    return World([waits, stuck, left, left]).run()


@pytest.mark.parametrize(("ranks", "others", "may"), [([0], [1], True), ([0], [2, 3], False), ([2], [1], True)])
def test_who_waits_for_whom(ranks: list[int], others: list[int], may: bool) -> None:
    assert Case(job().snapshot()).may_wait_for(ranks, others) is may


def test_ranks_that_left_a_loop_are_not_at_fault_where_those_inside_wait_for_another() -> None:
    judgement = diagnose(job().snapshot(still_s=20.0))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("user-code-blocked", [1])
