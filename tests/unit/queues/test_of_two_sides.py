"""The order of calls that all ranks kept, where one of them, or one of two halves, leaves it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hangwatch.facts.calls.queues import departure_of
from hangwatch.facts.case import Case
from hangwatch.judge import diagnose
from hangwatch.model import Certainty, Judgement, Snapshot
from tests.unit.simulator import Action, Call, World

TURN: list[Action] = [Call("all_to_all", line=15), Call("all_gather", line=17), Call("all_reduce", line=37)]


def job(*ranks: Sequence[Action], turns: int = 6) -> Snapshot:
    """Each rank makes some turns like the others, and then its own calls."""
    return World([[*TURN * turns, *own] for own in ranks]).run().snapshot()


def judged(*ranks: Sequence[Action]) -> Judgement:
    return diagnose(job(*ranks))


def test_a_rank_that_left_out_calls_is_at_a_later_one_of_the_turn() -> None:
    snapshot = job(TURN, TURN[2:], TURN)
    found = departure_of(Case(snapshot))
    assert found is not None
    assert (found.ranks, found.against, found.number, found.count) == ((1,), (0, 2), 19, 2)
    assert (found.usual.op, found.own.op) == ("all_to_all", "all_reduce")
    assert not found.at_one_line


def test_the_verdict_names_what_was_left_out_and_no_mismatch() -> None:
    verdict = judged(TURN, TURN[2:], TURN).verdict
    assert (verdict.cause, verdict.certainty) == ("skipped-collective", Certainty.LIKELY)
    assert [culprit.rank for culprit in verdict.culprits] == [1]
    assert "left out all_to_all 19 of the default group (train.py:15) and 1 call after it" in verdict.summary
    assert any("in earlier rounds rank 1 called all_to_all" in sentence for sentence in verdict.evidence)


def test_of_two_ranks_the_one_that_kept_the_order_is_not_blamed() -> None:
    found = departure_of(Case(job(TURN[1:], TURN)))
    assert found is not None
    assert found.ranks == (0,)
    assert found.habit == 5


@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param((TURN[2:], TURN[2:], TURN), id="most have left it: they may rather have a new order"),
        pytest.param((TURN, [Call("broadcast", line=60)], TURN), id="a call that was never made before"),
        pytest.param((TURN, TURN, TURN), id="no rank has left it"),
    ],
)
def test_no_rank_is_said_to_have_left_the_order(ranks: tuple[Sequence[Action], ...]) -> None:
    assert departure_of(Case(job(*ranks))) is None


def test_one_turn_makes_no_order_of_two_ranks() -> None:
    assert departure_of(Case(job(TURN, TURN[2:], turns=1))) is None


def test_a_place_with_two_ways_on_shows_nothing_of_two_ranks() -> None:
    """An evaluation comes every other turn: what follows the last call of a turn is open."""
    evaluated: list[Action] = [*TURN, Call("gather", line=80)]
    mixed = [action for n in range(6) for action in (evaluated if n in (1, 2, 4) else TURN)]
    world = World([[*mixed, *TURN], [*mixed, Call("gather", line=80)]])
    assert departure_of(Case(world.run().snapshot())) is None


@pytest.mark.parametrize(("turns", "named"), [(12, True), (4, False)])
def test_most_ranks_that_leave_an_order_of_many_rounds_have_left_it(turns: int, named: bool) -> None:
    """After few rounds they may rather have a new order, and the one rank be wrong."""
    found = departure_of(Case(job(TURN, TURN[1:], TURN[1:], turns=turns)))
    assert (found is not None) is named
    if found is not None:
        assert (found.ranks, found.against, found.usual.op) == ((1, 2), (0,), "all_to_all")


def test_the_few_that_kept_the_order_are_not_said_to_have_left_out_what_the_many_came_to() -> None:
    alike: list[Action] = [*[Call("all_reduce", line=15)] * 3, Call("all_reduce", line=17)]
    world = World([[*alike * 12, *alike], *([*alike * 12, *alike[:3], *alike] for _ in range(3))])
    kept = World([[*alike * 12, *alike], *([*alike * 11, *alike[:3], *alike] for _ in range(3))])
    for each in (world, kept):
        verdict = diagnose(each.run().snapshot()).verdict
        assert 0 not in [culprit.rank for culprit in verdict.culprits]
