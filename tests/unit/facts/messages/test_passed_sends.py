"""A rank that went past the send for which its receiver waits, in the first round."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Frame, Verdict
from tests.unit.job import SCRIPT
from tests.unit.rules.step.worlds import STEP, world
from tests.unit.simulator import Action, Call, Peer

ROUND_END = 51  # the line of the barrier behind the messages


def verdict_of(asks: str = "value", behind: int = ROUND_END) -> tuple[Verdict, list[tuple[int | None, int | None]]]:
    """A learner that receives from two actors, the first of which sent nothing and stands at the line `behind`."""
    learner: list[Action] = [Peer("recv", 1, line=31), Peer("recv", 2, line=31), Call("barrier", line=36)]
    actors: list[list[Action]] = [
        [Call("barrier", line=behind)],
        [Peer("send", 0, line=49), Call("barrier", line=ROUND_END)],
    ]
    way = Bypass(Frame(SCRIPT, 48, "main"), "if steps > 9", inner=True, asks=asks)
    programs: list[list[Action]] = [[*STEP, *each] for each in (learner, *actors)]
    snapshot = replace(world(*programs), call_sites=(CallSite((Frame(SCRIPT, 49, "main"),), (way,)),))
    judgement = diagnose(snapshot)
    return judgement.verdict, [
        (each.rank, each.where.line if each.where else None) for each in judgement.verdict.culprits
    ]


def test_the_actor_that_left_out_its_send_is_named_and_not_its_receiver() -> None:
    verdict, culprits = verdict_of()
    assert verdict.cause == "point-to-point-deadlock"
    assert culprits == [(1, 48)]
    assert 0 in verdict.victims
    assert any(sentence.startswith("rank 2 stands in the send that rank 1 is past") for sentence in verdict.evidence)


@pytest.mark.parametrize(
    ("asks", "behind"),
    [
        pytest.param("rank", ROUND_END, id="not every rank is to send"),
        pytest.param("alike", ROUND_END, id="all ranks answer alike"),
        pytest.param("value", 40, id="it has not come to the send"),
    ],
)
def test_where_that_is_not_known_both_sides_of_the_circle_are_named(asks: str, behind: int) -> None:
    assert [rank for rank, _ in verdict_of(asks, behind)[1]] == [0, 1]
