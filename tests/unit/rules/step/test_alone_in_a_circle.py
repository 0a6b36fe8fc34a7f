"""Ranks that wait in a circle over several groups, of which one stands in a call that no other rank ever makes."""

from __future__ import annotations

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Certainty, Judgement
from tests.unit.rules.step.worlds import Groups, Program, world
from tests.unit.simulator import Call, Draw, blamed_ranks

GROUPS: Groups = {"pairs": [(0, 1), (2, 3)]}


def _turn(batch: int, first: Call | None = None) -> Program:
    """A call of the rank's pair and one of all, from one line of a helper; `first` comes before them."""
    own = [] if first is None else [first]
    return [Draw(0, batch), *own, Call(group="pairs", line=13), Call(line=13)]


def _judged(last: dict[int, Call]) -> Judgement:
    """In the last turn these ranks make a call of their own first."""
    regular = [action for batch in range(3) for action in _turn(batch)]
    return diagnose(world(*([*regular, *_turn(3, last.get(rank))] for rank in range(4)), groups=GROUPS))


@pytest.mark.parametrize("alone", [0, 1, 3])
def test_the_one_in_a_call_that_is_new_to_all_is_to_blame(alone: int) -> None:
    judgement = _judged({alone: Call("all_gather", line=70)})
    assert judgement.verdict.cause == "rank-zero-only-collective", judgement.verdict.summary
    assert blamed_ranks(judgement) == [alone]
    assert [who.where.line for who in judgement.verdict.culprits if who.where] == [70]
    assert judgement.verdict.certainty is Certainty.LIKELY
    assert "no other rank has ever called all_gather at train.py:70" in judgement.verdict.evidence


def test_calls_of_all_groups_from_one_line_of_a_trainer_are_told_apart_by_the_trainers_lines() -> None:
    """GIVEN trainer.fit() above every call WHEN a rank makes one that is new THEN another call from fit() is no reason
    to take it for one that all make.
    """

    def turn(batch: int, *more: Call) -> Program:
        return [Draw(0, batch), Call(line=99, trainer=41), *more, Call(group="pairs", line=99, trainer=46)]

    regular = [action for batch in range(3) for action in turn(batch)]
    odd = Call(line=99, trainer=70)
    snapshot = world([*regular, *turn(3)], [*regular, *turn(3, odd)], groups={"pairs": [(0, 1)]})
    judgement = diagnose(snapshot)
    assert judgement.verdict.cause == "rank-zero-only-collective", judgement.verdict.summary
    assert blamed_ranks(judgement) == [1]
    (said,) = [each for each in judgement.verdict.evidence if each.startswith("no other rank has ever called")]
    assert said.endswith(".py:70)"), "the user's line made all the other calls, too"


def test_where_two_that_wait_for_each_other_came_to_new_calls_neither_is_alone() -> None:
    judgement = _judged({0: Call("all_gather", line=70), 1: Call("all_gather", line=80, group="pairs")})
    assert judgement.verdict.cause != "rank-zero-only-collective"
