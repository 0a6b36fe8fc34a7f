"""`skipped-collective`: one of the calls that a loop over parameters makes, each of its own size."""

from __future__ import annotations

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.out_of_round import out_of_round
from hangwatch.judge import diagnose
from tests.unit.rules.step.worlds import Program, world
from tests.unit.simulator import Call, Draw, blamed_ranks

SIZES = (64, 20, 48, 9)


def rounds(*sizes: int) -> Program:
    return [Draw(), *(Call(line=12, size=size) for size in sizes)]


@pytest.mark.parametrize("left_out", [0, 1, 2])
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_rank_that_is_a_call_ahead_in_its_round_left_one_out(left_out: int, ranks: int) -> None:
    short = tuple(size for place, size in enumerate(SIZES) if place != left_out)
    usual = [*rounds(*SIZES) * 5, *rounds(*SIZES)]
    odd = [*rounds(*SIZES) * 5, *rounds(*short)]
    snapshot = world(*([usual] * (ranks - 1)), odd)
    found = out_of_round(Case(snapshot))
    assert found is not None
    assert (found.ranks, found.missing, found.rounds) == ((ranks - 1,), 1, 4 + (left_out > 1))
    assert str(found.due.shape) == f"all_reduce of {SIZES[left_out]} elements (float32)"
    judgement = diagnose(snapshot)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [ranks - 1])


def test_a_size_that_no_round_had_before_is_a_mismatch() -> None:
    usual, odd = rounds(*SIZES) * 6, [*rounds(*SIZES) * 5, *rounds(64, 21, 48, 9)]
    assert out_of_round(Case(world(usual, usual, odd))) is None


def test_in_the_first_rounds_there_is_no_habit() -> None:
    usual, odd = rounds(*SIZES) * 2, [*rounds(*SIZES), *rounds(*SIZES[1:])]
    assert out_of_round(Case(world(usual, usual, odd))) is None
