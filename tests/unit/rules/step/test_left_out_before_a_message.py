"""`skipped-collective`: a call left out by a rank that waits for a message of those who wait in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Certainty, Frame, Judgement
from tests.unit.simulator import SCRIPT, Action, Call, Draw, Peer, World, blamed_ranks

GATHER = 40
WAY = Bypass(Frame(SCRIPT, 39, "main"), "if not metrics: return", True, "check")


def stage(rank: int, last: int) -> list[Action]:
    """A turn of a pipeline: from the stage before, to the next one, and the optimizer's step, which ends the step."""
    before = [Peer("recv", rank - 1, line=30)] if rank else []
    return [*before, *([Peer("send", rank + 1, line=31)] if rank < last else []), Draw()]


def judged(ways: tuple[Bypass, ...] = (WAY,), *, ranks: int = 3, absent: int = 2, earlier: bool = False) -> Judgement:
    """After five turns all but one gather, and that one goes on to its next turn."""

    def program(rank: int) -> list[Action]:
        turn, gather = stage(rank, ranks - 1), Call("all_gather", line=GATHER)
        before = [*turn * 2, gather, *turn * 3] if earlier else turn * 5
        return [*before, *([] if rank == absent else [gather]), *turn]

    snapshot = World([program(rank) for rank in range(ranks)]).run().snapshot()
    return diagnose(replace(snapshot, call_sites=(CallSite((Frame(SCRIPT, GATHER, "main"),), ways),)))


def test_the_rank_that_went_by_is_told_and_none_of_those_that_wait_for_it() -> None:
    judgement = judged()
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("skipped-collective", Certainty.LIKELY)
    assert blamed_ranks(judgement) == [2]
    assert "Rank 2 left out all_gather" in judgement.verdict.summary
    assert "probably at train.py:39 (`if not metrics: return`)" in judgement.verdict.summary


def test_a_call_of_earlier_steps_was_left_out_by_the_records_too() -> None:
    judgement = judged((), earlier=True)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [2])


def test_a_call_that_is_new_may_as_well_be_one_too_many() -> None:
    judgement = judged(())
    assert blamed_ranks(judgement) == []
    assert "which of them is wrong is not known" in judgement.verdict.summary


@pytest.mark.parametrize(
    ("ways", "ranks"), [((replace(WAY, asks="rank"),), 3), ((WAY,), 2)], ids=["behind a rank check", "of two halves"]
)
def test_where_the_few_may_be_those_that_gather_it_is_not_said(ways: tuple[Bypass, ...], ranks: int) -> None:
    assert "left out all_gather" not in judged(ways, ranks=ranks, absent=ranks - 1).verdict.summary


def test_a_rank_amid_the_messages_of_its_turn_has_not_come_to_the_next_call() -> None:
    """GIVEN a server that receives twice after each broadcast WHEN one of its clients does not send THEN the server,
    which is in its second receive, has left nothing out."""
    broadcast, turns = Call("broadcast", line=10, root=0), 5

    def server() -> list[Action]:
        actions: list[Action] = []
        for one, two in [(1, 2), (2, 3), (1, 3), (1, 2), (2, 3)]:
            actions += [broadcast, Peer("recv", one, line=20), Peer("recv", two, line=20)]
        return actions

    def client(rank: int) -> list[Action]:
        chosen = {1: (0, 2, 3), 2: (0, 1, 3, 4), 3: (1, 2)}[rank]  # 3 should have sent in the last turn
        actions: list[Action] = []
        for turn in range(turns + 1):
            actions += [broadcast, *([Peer("send", 0, line=30)] if turn in chosen else [])]
        return actions

    judgement = diagnose(World([server(), *map(client, (1, 2, 3))]).run().snapshot())
    assert "left out" not in judgement.verdict.summary
    assert judgement.verdict.cause == "point-to-point-deadlock"
    assert blamed_ranks(judgement) in ([3], [0, 3])


def _in_pairs(*, steps: int, short: int | None = 1, habit: bool = True) -> Judgement:
    """Two ranks that reduce in a group of their own, and then send and receive; rank `short` leaves the first out."""

    def program(rank: int) -> list[Action]:
        message = Peer("send", 1, line=31) if rank == 0 else Peer("recv", 0, line=30)
        reduce = Call(line=12, group="pairs")
        usual = [reduce, message] if habit else [message, reduce]
        before = [action for batch in range(steps) for action in (Draw(0, batch), *usual)]
        return [*before, Draw(0, steps), *([message] if rank == short else [reduce, message]), Call(line=50)]

    return diagnose(World([program(0), program(1)], {"pairs": [(0, 1)]}).run().snapshot())


def test_one_of_two_is_told_by_the_order_of_its_own_steps() -> None:
    judgement = _in_pairs(steps=4)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [1])
    said = "rank 1 made that call ahead of recv (train.py:30) in each of 4 steps before, and not in this one"
    assert said in judgement.verdict.evidence


@pytest.mark.parametrize(("steps", "habit"), [(1, True), (4, False)], ids=["no habit yet", "the call comes later"])
def test_without_such_an_order_neither_of_two_is_told(steps: int, habit: bool) -> None:
    judgement = _in_pairs(steps=steps, habit=habit)
    assert "left out all_reduce" not in judgement.verdict.summary
