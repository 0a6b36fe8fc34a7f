"""DDP's first steps, in which it finds out about its buckets by further collectives, are no rank's habit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.parting import Left, parting
from hangwatch.judge import Case, diagnose
from hangwatch.model import Bypass, CallSite, Frame, RankEvidence, Snapshot
from tests.unit.simulator import SCRIPT, Action, Call, Draw, LoopEnd, World

GRADIENTS = Call(via="gradients", line=12)


def training(batches: int, *, skip: int | None = None) -> list[Action]:
    """Two collectives more in batch 1, as DDP's are, and none in batch `skip`."""
    counts = [0 if batch == skip else 3 if batch == 1 else 1 for batch in range(batches)]
    actions: list[Action] = []
    for batch, count in enumerate(counts):
        actions += [Draw(0, batch), *[GRADIENTS] * count]
    return [*actions, LoopEnd()]


def without_frames(snapshot: Snapshot) -> Snapshot:
    """NCCL's recorder, asked without the interpreter lock, tells no call sites of what C++ code issued."""
    ranks = (
        replace(
            rank,
            collectives=replace(
                rank.collectives, recent=tuple(replace(call, frames=()) for call in rank.collectives.recent)
            ),
        )
        for rank in snapshot.ranks
    )
    return replace(snapshot, ranks=tuple(ranks))


def test_the_rank_that_skipped_is_told_by_its_habit() -> None:
    snapshot = World([training(9), training(9, skip=6)]).run().snapshot(still_s=20.0)
    found = parting(Case(without_frames(snapshot)))
    assert found is not None
    assert (found.how, found.who, found.divergence.step) == (Left.SKIPPED, (1,), 6)


def test_two_steps_are_too_few_for_a_habit_without_the_first_ones() -> None:
    snapshot = World([training(4), training(4, skip=3)]).run().snapshot(still_s=20.0)
    found = parting(Case(without_frames(snapshot)))
    assert found is None or found.how is not Left.EXTRA


def test_what_nearly_all_ranks_do_for_the_first_time_the_one_that_did_not_has_skipped() -> None:
    usual = training(9)
    gathers = [*usual[:-3], Call("all_gather", line=40), *usual[-3:]]
    found = parting(Case(World([gathers, gathers, gathers, usual]).run().snapshot(still_s=20.0)))
    assert found is not None
    assert (found.how, found.who, found.call) == (Left.SKIPPED, (3,), "all_gather (train.py:40)")


def test_where_two_make_a_new_call_and_one_does_not_no_side_is_blamed() -> None:
    usual = training(9)
    gathers = [*usual[:-3], Call("all_gather", line=40), *usual[-3:]]
    found = parting(Case(World([gathers, gathers, usual]).run().snapshot(still_s=20.0)))
    assert found is not None
    assert not found.who


@pytest.mark.parametrize(
    ("evaluates", "guard", "how", "who"),
    [(True, "none", Left.UNKNOWN, ()), (True, "rank", Left.EXTRA, (0,)), (False, "none", Left.EXTRA, (0,))],
)
def test_in_a_step_that_is_new_to_all_a_new_call_is_not_one_too_many(
    evaluates: bool, guard: str, how: Left, who: tuple[int, ...]
) -> None:
    """After the first evaluation of all, rank 0 is in a call behind it and rank 1 in the next step."""

    def program(rank: int) -> list[Action]:
        first = [action for batch in range(6) for action in (Draw(0, batch), GRADIENTS)]
        evaluation = [Call("all_gather", line=40)] * (4 if evaluates else 0)
        return [*first, *evaluation, *([Call("barrier", line=50)] if rank == 0 else [Draw(0, 6), GRADIENTS])]

    def guarded(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, guard=guard if entry.rank == 0 else "none") for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    snapshot = World([program(0), program(1)]).run().snapshot(still_s=20.0)
    handler = Bypass(Frame(SCRIPT, 52, "main"), "except KeyError")
    sites = (CallSite((Frame(SCRIPT, 50, "main"),), (handler,)),)
    snapshot = replace(snapshot, ranks=tuple(map(guarded, snapshot.ranks)), call_sites=sites)
    found = parting(Case(snapshot))
    assert found is not None
    assert (found.how, found.who) == (how, who)
    passed = "a turn of the loop can go on without barrier (train.py:50) at train.py:52 (`except KeyError`)"
    assert (passed in diagnose(snapshot).verdict.evidence) == (how is Left.UNKNOWN)
