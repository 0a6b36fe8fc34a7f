"""Calls that come earlier in their step than ever."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.facts.places_in_step import early_calls
from hangwatch.judge import diagnose
from hangwatch.model import Collective, Frame, Phase, Progress, RankEvidence, Snapshot, StepEntry
from tests.unit.job import SCRIPT, blamed, gone, snapshot, told

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
