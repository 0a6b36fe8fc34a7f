"""Calls that come earlier in their step than ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangwatch.facts.calls.places_in_step import early_calls
from hangwatch.facts.case import Case
from hangwatch.judge import diagnose
from hangwatch.model import (
    Collective,
    ExceptionFacts,
    Frame,
    LoaderFacts,
    Phase,
    Progress,
    RankEvidence,
    Snapshot,
    StepEntry,
)
from hangwatch.rules.step.skipped_collective.by_place import earlier_than_ever
from tests.unit.job import C10D, IN_BACKWARD, SCRIPT, blamed, frames, gone, rank, snapshot, told

PER_STEP = 3  # two collectives of DDP, of which a board has no record, and the loss as third
STEPS = 5


def board(number: int, *, last: int, issued: int, code: int = 1, usual: tuple[int, ...] = (3,) * STEPS) -> RankEvidence:
    """A dead rank whose board has its calls of the loss: `usual` of each step, and `last` of the present one."""
    begun = [PER_STEP * step for step in range(STEPS + 1)]
    steps = tuple(StepEntry(step, 0, step, 0, 1.0, {"0": count}) for step, count in enumerate(begun))
    places = [*usual, *([last] if last else [])]
    calls = tuple(
        Collective("0", begun[step] + place, "all_reduce", ((1,),), step=step, frames=(Frame(SCRIPT, 60, "log"),))
        for step, place in enumerate(places)
    )
    progress = Progress(0, STEPS, STEPS)
    return gone(
        number, code, Phase.STEP, world_size=3, issued=issued, completed=issued - 1, steps=steps, calls=calls,
        progress=progress,
    )  # fmt: skip


def job(first: RankEvidence, others_issued: int) -> Snapshot:
    others = (board(rank, last=0, issued=others_issued) for rank in (1, 2))
    return snapshot(first, *others, world_size=3)


def test_a_call_that_comes_earlier_than_in_all_steps_before_is_found_from_the_board_alone() -> None:
    (early,) = early_calls(Case(job(board(0, last=1, issued=16, code=-6), others_issued=17)))
    assert (early.rank, early.place, early.usual, early.missing) == (0, 1, 3, 2)
    assert early.step.step == STEPS


def test_its_rank_has_left_out_what_came_before_it() -> None:
    judgement = diagnose(job(board(0, last=1, issued=16, code=-6), others_issued=17))
    assert told(judgement)[:2] == ("skipped-collective", "likely")
    assert blamed(judgement)[0][0] == 0
    assert "Rank 0 left out 2 collectives before all_reduce (train.py:60)" in judgement.verdict.summary
    habit = "was number 1 of its step in group 0, and number 3 in each of the 3 steps before"
    assert habit in judgement.verdict.evidence[0]


def test_a_rank_that_is_where_no_other_has_come_yet_may_have_a_habit_in_common_with_them() -> None:
    # GIVEN the others before that number: the last step of an epoch may hold less on every rank
    assert early_calls(Case(job(board(0, last=1, issued=16), others_issued=15))) == ()


def test_a_place_that_varies_is_no_habit() -> None:
    assert early_calls(Case(job(board(0, last=1, issued=16, usual=(3, 3, 3, 1, 3)), others_issued=17))) == ()


def test_a_call_at_its_usual_place_is_none() -> None:
    assert early_calls(Case(job(board(0, last=3, issued=18), others_issued=18))) == ()


NORM = frames((C10D, 3, "all_reduce"), ("/app/layers.py", 10, "forward"), (SCRIPT, 60, "main"))


def normalising(number: int, *, last: int, issued: int, **parts: Any) -> RankEvidence:
    """A rank with two calls of a layer in each step, then the gradients; `last` of the calls in the present step."""
    steps = tuple(StepEntry(step, 0, step, 0, 1.0, {"0": PER_STEP * step}) for step in range(STEPS + 1))
    calls = tuple(
        Collective("0", PER_STEP * step + place, "all_reduce", ((8,),), step=step, frames=NORM)
        for step in range(STEPS + 1)
        for place in ((1, 2) if step < STEPS else range(1, last + 1))
    )
    return rank(number, steps=steps, calls=calls, issued=issued, progress=Progress(0, STEPS, STEPS), **parts)


def test_the_gradients_come_earlier_than_ever_where_a_layer_left_out_its_calls() -> None:
    others = (normalising(number, last=1, issued=16, stack=NORM) for number in (1, 2))
    case = Case(snapshot(normalising(0, last=0, issued=16, stack=IN_BACKWARD), *others, world_size=3))
    (early,) = early_calls(case)
    assert (early.rank, early.own, early.place, early.usual, early.step.step) == (0, True, 1, 3, STEPS)


def test_the_gradients_in_which_a_rank_ended_count_although_it_could_not_count_them() -> None:
    lost = ExceptionFacts("RuntimeError", "Connection closed by peer [10.0.0.2]:1", IN_BACKWARD)
    ended = normalising(0, last=0, issued=14, stack=IN_BACKWARD, phase=Phase.FAILED, exception=lost)
    others = (normalising(number, last=1, issued=16, stack=NORM) for number in (1, 2))
    judgement = diagnose(snapshot(ended, *others, world_size=3))
    assert told(judgement)[:2] == ("skipped-collective", "likely")
    assert blamed(judgement)[0][0] == 0
    assert "Rank 0 left out all_reduce (layers.py:10) in epoch 0, batch 5 (step 5)" in judgement.verdict.summary


def test_the_gradients_behind_the_usual_calls_come_at_their_usual_place() -> None:
    ranks = (normalising(number, last=2, issued=18, stack=IN_BACKWARD) for number in range(3))
    assert early_calls(Case(snapshot(*ranks, world_size=3))) == ()


def test_all_ranks_that_left_out_the_layer_s_calls_left_them_out_together() -> None:
    ranks = (normalising(number, last=0, issued=16, stack=IN_BACKWARD) for number in range(3))
    assert early_calls(Case(snapshot(*ranks, world_size=3))) == ()


def _drawing(rank: RankEvidence, *, epoch: int, drawn: int, past: tuple[int, ...] = ()) -> RankEvidence:
    assert rank.reading is not None
    loader = LoaderFacts(
        0, 75, epoch=epoch, drawn=drawn, drawn_per_epoch=past, exhausted_per_epoch=(False,) * len(past)
    )
    return replace(rank, reading=replace(rank.reading, loaders=(loader,)))


def test_a_rank_that_has_left_its_loop_has_left_out_nothing_within_it() -> None:
    """It began the next epoch after 32 of 75 batches; the others are still in the epoch before."""
    early = job(board(0, last=1, issued=16, code=-6), others_issued=17)
    first, *others = early.ranks
    ranks = (_drawing(first, epoch=1, drawn=0, past=(32,)), *(_drawing(each, epoch=0, drawn=32) for each in others))
    assert earlier_than_ever(Case(early)) is not None
    assert earlier_than_ever(Case(replace(early, ranks=ranks))) is None
