"""Ranks that make the same calls at intervals of their own, and ranks whose calls are shifted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.parting import parting
from hangwatch.judge import diagnose
from hangwatch.model import Snapshot
from tests.unit.rules.step.worlds import with_ring
from tests.unit.simulator import Action, Call, Draw, World

AVERAGE, FINAL = Call(line=11), Call(line=33, size=1)


def training(*intervals: int) -> list[Action]:
    """So many steps before each call that averages the weights, and a last call at the end."""
    found: list[Action] = []
    for steps in intervals:
        found += [*[Draw()] * steps, AVERAGE]
    return [*found, *[Draw()] * 2, FINAL]


TURN: list[Action] = [Draw(), AVERAGE]
ALL: list[Action] = [*TURN * 10, FINAL]


def watched(*programs: list[Action]) -> Snapshot:
    snapshot = World(programs).run().snapshot()
    return replace(snapshot, ranks=tuple(map(with_ring, snapshot.ranks)))


@pytest.mark.parametrize("culprit", [0, 2])
def test_calls_at_intervals_of_each_rank_are_not_missing_in_a_step(culprit: int) -> None:
    """GIVEN a rank that averages every 3 steps and others every 4, by their clocks WHEN it has one call more to make
    THEN no call of before was its own: they were paired, in unlike steps."""
    slow = training(*[3] * 6)
    snapshot = watched(*(slow if rank == culprit else training(*[4] * 5) for rank in range(3)))
    assert parting(Case(snapshot)) is None
    verdict = diagnose(snapshot).verdict
    assert "never call" not in verdict.summary
    assert [who.rank for who in verdict.culprits] in ([culprit], [])


def test_calls_that_are_shifted_after_one_was_left_out_are_missing_there() -> None:
    """GIVEN a rank that left out the call of step 4: its later ones are paired with those of the step before."""
    skips: list[Action] = [*TURN * 4, Draw(), *TURN * 5, FINAL]
    snapshot = watched(ALL, skips, ALL)
    found = parting(Case(snapshot))
    assert found is not None
    assert (found.who, found.step.step) == ((1,), 4)


def test_a_call_left_out_at_the_first_time_shifts_all_others_by_as_many_steps() -> None:
    skips: list[Action] = [Draw(), *TURN * 9, FINAL]
    snapshot = watched(ALL, skips, ALL)
    found = parting(Case(snapshot))
    assert found is not None
    assert found.step.step == 0


CHOSEN = {0: "1110110100110", 1: "1111010110010", 2: "1100101011010"}  # the rounds in which a client trains


def clients() -> Snapshot:
    """Federated averaging: a round begins with a call of all, and who was chosen for it makes steps of its own."""
    ranks: list[list[Action]] = []
    for rounds in CHOSEN.values():
        work: list[list[Action]] = [[AVERAGE, *[Draw()] * (3 if chosen == "1" else 0)] for chosen in rounds]
        ranks.append([action for each in work for action in each])
    return watched([*ranks[0], Draw(), FINAL], *ranks[1:])


def test_steps_of_a_rank_s_own_say_nothing_of_calls() -> None:
    """GIVEN ranks that make steps only in some rounds, each in others THEN no call of a step is missing or extra."""
    snapshot = clients()
    assert parting(Case(snapshot)) is None
    assert "mispaired" not in diagnose(snapshot).verdict.summary


def test_a_rank_that_leaves_out_its_call_now_and_then_among_regular_ones_is_told() -> None:
    """GIVEN two calls left out, by one rank, while the others call in every step THEN the first is where it parted."""
    skips: list[Action] = [*TURN * 4, Draw(), *TURN * 3, Draw(), *TURN * 2, FINAL]
    found = parting(Case(watched(ALL, skips, ALL)))
    assert found is not None
    assert (found.who, found.step.step) == ((1,), 4)
