"""`point-to-point-deadlock`: sends and receives do not match."""

from __future__ import annotations

from hangwatch.judge import diagnose
from hangwatch.model import Status
from tests.unit.rules.step.worlds import STEP, world
from tests.unit.simulator import Call, Peer, Stall


def test_all_ranks_sending_is_a_point_to_point_deadlock() -> None:
    judgement = diagnose(world([*STEP * 3, Peer("send", 1)], [*STEP * 3, Peer("send", 0)]))
    assert judgement.verdict.cause == "point-to-point-deadlock"
    assert judgement.status is Status.HUNG


def test_a_receive_whose_sender_waits_elsewhere_is_one_too() -> None:
    judgement = diagnose(world([*STEP, Peer("recv", 1), Call("barrier")], [*STEP, Call("barrier")]))
    assert judgement.verdict.cause == "point-to-point-deadlock"


def test_a_receive_whose_sender_still_computes_is_none() -> None:
    judgement = diagnose(world([*STEP, Peer("recv", 1)], [*STEP, Stall(kind="loop"), Peer("send", 0)]))
    assert judgement.verdict.cause == "user-code-blocked"
    assert judgement.status is Status.WAITING
