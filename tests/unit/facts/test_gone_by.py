"""Calls of the present step that no rank had made before: which ranks went by without them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.call_sites import sites_of
from hangwatch.facts.gone_by import gone_by
from hangwatch.judge import Case
from hangwatch.model import Bypass, CallSite, Frame, Snapshot
from hangwatch.rules.step.rank_zero_only_collective.in_this_step import made_in_this_step
from hangwatch.rules.step.skipped_collective.by_order import skipped_by_site
from tests.unit.rules.step.worlds import Program, world
from tests.unit.simulator import SCRIPT, Call, Draw

GATHER, SCATTER, NEW = Call("all_gather", line=12), Call("reduce_scatter", line=14), Call("all_gather", line=30)
STEP: Program = [Draw(), GATHER, GATHER, SCATTER]
EVALUATES: Program = [Draw(), NEW, *STEP[1:]]
GUARD = Bypass(Frame(SCRIPT, 29, "main"), "if rank % 2 == 0", asks="rank")


def job(*evaluate: int, ranks: int = 4) -> Snapshot:
    """Ranks of which some evaluate ahead of the sixth step: they and the others are paired in silence for two calls."""
    return world(*([*STEP * 5, *(EVALUATES if rank in evaluate else STEP)] for rank in range(ranks)))


def test_the_ranks_that_went_by_have_made_the_call_that_followed() -> None:
    found = gone_by(Case(job(0, 2)))
    assert found is not None
    assert (found.makers, found.others) == ((0, 2), (1, 3))
    assert [call.frames[-1].line for call in found.calls] == [30]


def test_ranks_that_have_not_come_so_far_may_still_make_them() -> None:
    """GIVEN rank 1 still in the call ahead of the new one THEN it has gone by nothing."""
    late: Program = [*STEP * 5, Draw(), SCATTER]
    assert gone_by(Case(world([*STEP * 5, *EVALUATES], late))) is None


def test_calls_that_all_make_now_and_then_are_not_new() -> None:
    usual: Program = [*STEP * 3, *EVALUATES, *STEP * 3]
    assert gone_by(Case(world([*usual, *EVALUATES], [*usual, *STEP]))) is None


@pytest.mark.parametrize(("evaluate", "told"), [((1,), (1,)), ((0, 2), ()), ((0, 1, 2), ())])
def test_a_minority_is_named_and_of_two_halves_none(evaluate: tuple[int, ...], told: tuple[int, ...]) -> None:
    found = made_in_this_step(Case(job(*evaluate)))
    assert tuple(who.rank for who in (found.culprits if found is not None else ())) == told


def test_of_two_halves_the_one_behind_a_rank_check_is_named() -> None:
    snapshot = job(0, 2)
    call = gone_by(Case(snapshot))
    assert call is not None
    frames = tuple(frame for frame in call.calls[0].frames if frame.file == SCRIPT)
    found = made_in_this_step(Case(replace(snapshot, call_sites=(CallSite(frames, (GUARD,)),))))
    assert found is not None
    assert [(who.rank, who.where) for who in found.culprits] == [(0, GUARD.where), (2, GUARD.where)]
    assert "made all_gather (train.py:30) in step 5, and ranks 1 and 3 went by without" in found.summary


def test_ranks_that_made_a_call_as_often_as_ever_have_not_skipped_it() -> None:
    """GIVEN ranks 1 and 3 in the call after the one in which the others stand THEN they left out nothing before it."""
    case = Case(job(0, 2))
    place = sites_of(case).now(0)
    assert place is not None
    assert place.lines[0][1] == 12
    assert sites_of(case).made_as_often_as_ever(1, place)
    assert skipped_by_site(case) is None
    short = Case(world([*STEP * 5, *STEP], [*STEP * 5, Draw(), GATHER, SCATTER]))
    assert not sites_of(short).made_as_often_as_ever(1, place)
