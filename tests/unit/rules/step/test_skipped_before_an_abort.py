"""`skipped-collective`: a call of every step was left out, and the backend ended the job for what came instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import Collective, Frame, Judgement, Progress, RankEvidence
from tests.unit.job import SCRIPT, blamed, judge, rank, told
from tests.unit.rules.step.aborts import MODULE, SIZES, calls, dead, lost
from tests.unit.simulator import TORCH

STEP = 6


def in_step(evidence: RankEvidence, step: int = STEP) -> RankEvidence:
    assert evidence.reading is not None
    return replace(evidence, reading=replace(evidence.reading, progress=Progress(step=step)))


def ring(steps: int) -> tuple[Collective, ...]:
    """The call in each of the steps; C++ code issued another one in each."""
    return calls(steps)


def ended_by_launcher(number: int, made: tuple[Collective, ...], step: int = STEP) -> RankEvidence:
    return in_step(dead(number, made, -15, inside=False), step)


def job(odd: RankEvidence, *, others: int = 2) -> Judgement:
    aborted = in_step(dead(0, ring(STEP + 1)))
    broke = [in_step(lost(2, ring(STEP + 1)))] if others == 2 else []
    return judge(aborted, odd, *broke)


@pytest.mark.parametrize("others", [1, 2])
def test_the_rank_without_a_record_of_a_call_of_every_step_skipped_it(others: int) -> None:
    judgement = job(ended_by_launcher(1, ring(STEP)), others=others)
    assert told(judgement) == ("skipped-collective", "likely", "failed")
    assert [rank for rank, _, _ in blamed(judgement)] == [1]
    assert "Rank 1 skipped all_reduce (train.py:24) in step 6" in judgement.verdict.summary


def test_two_steps_from_the_first_on_are_a_habit() -> None:
    judgement = judge(in_step(dead(0, ring(3)), 2), ended_by_launcher(1, ring(2), step=2))
    assert told(judgement) == ("skipped-collective", "likely", "failed")
    assert [rank for rank, _, _ in blamed(judgement)] == [1]


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(ended_by_launcher(1, ring(STEP), step=STEP - 1), id="it is a step behind"),
        pytest.param(ended_by_launcher(1, ring(STEP + 1)), id="it has called it"),
        pytest.param(ended_by_launcher(1, ring(STEP)[::2]), id="it did not call it in every step"),
        pytest.param(ended_by_launcher(1, ring(STEP)[:2]), id="few steps"),
    ],
)
def test_any_other_rank_is_not_known_to_have_skipped_it(odd: RankEvidence) -> None:
    assert told(job(odd))[0] != "skipped-collective"


def twice(steps: int, last: int = 2) -> tuple[Collective, ...]:
    """Two calls from one line in each step, as a loop over losses makes them, and `last` in the last one."""
    made = [(step, turn) for step in range(steps) for turn in range(2 if step < steps - 1 else last)]
    return tuple(
        replace(calls(1)[0], seq=3 * step + turn + 1, step=step, at=1000.0 + 3 * step + turn) for step, turn in made
    )


@pytest.mark.parametrize(("made", "cause"), [(1, "skipped-collective"), (2, "undetermined")])
def test_a_rank_that_made_fewer_of_the_calls_of_a_loop_left_one_out(made: int, cause: str) -> None:
    """GIVEN a call made twice in each step WHEN a rank made it once, and the backend aborted one at the second."""
    odd = ended_by_launcher(1, twice(STEP + 1, last=made))
    judgement = judge(in_step(dead(0, twice(STEP + 1))), odd, in_step(lost(2, twice(STEP + 1))))
    assert told(judgement)[0] == cause, judgement.verdict.summary
    if made < 2:
        assert [number for number, _, _ in blamed(judgement)] == [1]
        assert "Rank 1 left out a call of all_reduce (train.py:24) in step 6" in judgement.verdict.summary
        assert any("had called it 2 times or more, rank 1 1 or less" in each for each in judgement.verdict.evidence)


GATHERS = (
    Frame(f"{TORCH}/distributed/_functional_collectives.py", 1138, "__torch_dispatch__"),
    Frame(f"{TORCH}/distributed/tensor/_redistribute.py", 1651, "redistribute_local_tensor"),
    Frame(f"{TORCH}/distributed/checkpoint/state_dict.py", 1221, "get_model_state_dict"),
)


@pytest.mark.parametrize(
    ("inside", "cause"), [(GATHERS, "rank-zero-only-collective"), (GATHERS[2:], "skipped-collective")]
)
def test_a_rank_that_gathered_a_sharded_state_was_alone_in_that(inside: tuple[Frame, ...], cause: str) -> None:
    """GIVEN a rank without a record of that call WHEN its last stack is in C++ code's collectives, at a new place."""
    save = (Frame(SCRIPT, 42, "save"), Frame(SCRIPT, 27, "main"), MODULE)
    odd = in_step(dead(1, calls(STEP, gap=1), inside=False, last_output=SIZES))
    odd = replace(odd, stacks=rank(1, (*inside, *save)).stacks)
    made = calls(STEP + 1, gap=1)
    judgement = judge(in_step(lost(0, made)), odd, in_step(lost(2, made)))
    assert told(judgement) == (cause, "likely", "failed"), judgement.verdict.summary
    assert [number for number, _, _ in blamed(judgement)] == [1]
