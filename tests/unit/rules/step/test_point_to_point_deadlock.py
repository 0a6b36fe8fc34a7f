"""`point-to-point-deadlock`: sends and receives do not match."""

from __future__ import annotations

from hangwatch.judge import diagnose
from hangwatch.model import Status
from tests.unit.rules.step.worlds import STEP, Program, world
from tests.unit.simulator import Call, Draw, Peer, Stall


def test_everybody_sending_is_a_point_to_point_deadlock() -> None:
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


def stage(sends: int, line: int = 30) -> Program:
    """A step of a stage of a pipeline: micro-batches are sent on, then their gradients are received."""
    return [Draw(), *[Peer("send", 1, line)] * sends, *[Peer("recv", 1, line + 2)] * 3]


NEXT_STAGE: Program = [Draw(), *[Peer("recv", 0, 40)] * 3, *[Peer("send", 0, 42)] * 3]


def test_a_send_that_was_left_out_is_named_with_its_line_and_habit() -> None:
    judgement = diagnose(world([*stage(3) * 4, *stage(2)], NEXT_STAGE * 5))
    verdict = judgement.verdict
    assert verdict.cause == "point-to-point-deadlock"
    assert [(culprit.rank, culprit.where and culprit.where.line) for culprit in verdict.culprits] == [(0, 30)]
    assert "Rank 0 left out a send to rank 1 (train.py:30)" in verdict.summary
    assert "rank 0 made 2 such sends; it made 3 in each of the 3 steps before" in verdict.evidence[0]


def test_a_stage_that_has_not_come_to_its_usual_send_has_left_out_none() -> None:
    late = [*stage(3) * 4, Draw(), Peer("send", 1), Stall(kind="loop")]
    verdict = diagnose(world(late, NEXT_STAGE * 5)).verdict
    assert "left out" not in verdict.summary
    assert verdict.cause == "user-code-blocked"


def test_one_step_makes_no_habit() -> None:
    verdict = diagnose(world([*stage(3) * 2, *stage(2)], NEXT_STAGE * 3)).verdict
    assert verdict.cause == "point-to-point-deadlock"
    assert {culprit.rank for culprit in verdict.culprits} == {0, 1}
