"""Batches drawn by the ranks, and what `Join` makes up for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import has_left_loop
from hangwatch.judge import diagnose
from hangwatch.model import Frame, Status
from tests.unit.job import IN_BACKWARD, IN_BARRIER, SCRIPT, rank, snapshot
from tests.unit.rules.step.loops import END, GRADIENTS, Program, epoch
from tests.unit.simulator import TRAINER, Leave, Stall, World, blamed_ranks


def test_calls_that_have_been_made_up_for_are_no_parting() -> None:
    """GIVEN rank 1 with fewer batches, which makes the calls of the others' batches within `Join`
    WHEN ranks 1 and 2 wait in one barrier for rank 0, which writes a checkpoint THEN only rank 0 is named."""
    long = epoch(0, 9, log=False)
    short = [*epoch(0, 6, log=False), *GRADIENTS * 3]
    world = World([[*long, Stall(kind="checkpoint", line=55), *END], [*short, *END], [*long, *END]]).run()
    judgement = diagnose(world.snapshot(still_s=8, patience_s=6))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("slow-checkpoint", [0])
    assert judgement.status is not Status.FAILED


@pytest.mark.parametrize("after", [[], [Stall(kind="checkpoint", line=55)]], ids=["ends", "saves"])
def test_ranks_whose_steps_are_mispaired_have_not_rejoined(after: Program) -> None:
    """GIVEN 7, 8 and 9 batches an epoch: rank 0 is through with both epochs when ranks 1 and 2 stand in the same line
    of different steps THEN the uneven epochs are what is told."""
    programs = [[*epoch(0, n, log=False), *epoch(1, n, log=False)] for n in (7, 8, 9)]
    programs[0] += after or [Leave()]
    verdict = diagnose(World(programs).run().snapshot()).verdict
    assert verdict.cause == "uneven-steps", verdict.summary
    assert {who.rank for who in verdict.culprits} >= {0}


def test_loaders_resumed_at_different_batches_are_named() -> None:
    """GIVEN rank 1, whose loader went on at batch 4 of 9 WHEN it is exhausted after 5 THEN that is said."""
    snapshot = World([epoch(0, 9, log=False), [*epoch(0, 5, log=False), *END]]).run().snapshot()
    reading = snapshot.ranks[1].reading
    assert reading is not None
    loaders = (replace(reading.loaders[0], length=9, resumed_at=4),)
    resumed = replace(snapshot.ranks[1], reading=replace(reading, loaders=loaders))
    verdict = diagnose(replace(snapshot, ranks=(snapshot.ranks[0], resumed))).verdict
    assert verdict.cause == "uneven-steps", verdict.summary
    assert "their loaders began that epoch at different batches: rank 0 at batch 0 and rank 1 at batch 4" in (
        verdict.evidence
    )
    assert "5 of at least 6 batches in epoch 0 (which it had resumed at a later batch than rank 0)" in verdict.summary
    assert "go on from one batch on every rank" in verdict.fix


def test_the_one_loader_that_was_resumed_at_an_earlier_batch_is_the_odd_one() -> None:
    """GIVEN ranks 0 and 1, which went on at batch 4 WHEN they run out of data THEN rank 2 is blamed, which did not."""
    snapshot = World([*([*epoch(0, 5, log=False), *END] for _ in range(2)), epoch(0, 9, log=False)]).run().snapshot()
    ranks = list(snapshot.ranks)
    for number in range(2):
        reading = ranks[number].reading
        assert reading is not None
        loaders = (replace(reading.loaders[0], length=9, resumed_at=4),)
        ranks[number] = replace(ranks[number], reading=replace(reading, loaders=loaders))
    verdict = diagnose(replace(snapshot, ranks=tuple(ranks))).verdict
    assert (verdict.cause, verdict.certainty, [who.rank for who in verdict.culprits]) == ("uneven-steps", "likely", [2])
    assert "(which they had resumed at a later batch than rank 2)" in verdict.summary


def test_a_rank_in_its_backward_is_in_a_step() -> None:
    """GIVEN ranks without a loader in their backward, of which no board has a record THEN none has left its loop."""
    case = Case(snapshot(*(rank(each, IN_BACKWARD, issued=3 - each, completed=2 - each) for each in range(2))))
    assert not has_left_loop(case, case.ranks[1])


def test_a_call_from_the_line_that_runs_the_steps_is_not_behind_their_loop() -> None:
    """GIVEN a trainer whose one line calls the step and, on rank 1 alone, a function with a barrier
    WHEN nothing else tells of loops THEN rank 1 has not left the loop; at a later line of the trainer it has."""
    run = (Frame(TRAINER, 574, "run"), Frame(SCRIPT, 105, "main"))
    step = (*IN_BARRIER[:1], Frame(TRAINER, 57, "step"), *run)
    retry = (*IN_BARRIER[:1], Frame(TRAINER, 67, "retry"), *run)
    behind = (*IN_BARRIER[:1], Frame(TRAINER, 590, "run"), *run[1:])
    for stack, left in ((retry, False), (behind, True)):
        ranks = (rank(0, step, issued=3, completed=2), rank(1, stack, issued=2, completed=1))
        case = Case(snapshot(*ranks))
        assert has_left_loop(case, case.ranks[1]) is left
