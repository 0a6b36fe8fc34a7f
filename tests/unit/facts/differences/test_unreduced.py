"""Ranks whose backward ended without all of its gradients, in a job that its backend brought down."""

from __future__ import annotations

from typing import Any

import pytest

from hangwatch.model import Collective, Frame, Phase, Progress, RankEvidence, StepEntry
from tests.unit.job import C10D, NOW, SCRIPT, blamed, gone, judge, told
from tests.unit.rules.step.aborts import SIZES

STEP, GRADIENTS = 6, 3  # the step in which it ended; collectives of C++ code in each step, besides that of Python
FIRST = 1  # in the first step all gradients are one bucket
LOG = (Frame(C10D, 3252, "all_reduce"), Frame(SCRIPT, 14, "log"), Frame(SCRIPT, 30, "main"))


def ended(
    number: int, phase: Phase, *, optimized: int, called: bool, reduced: int = 0, code: int = -15, **evidence: Any
) -> RankEvidence:
    """A rank that has ended in `STEP`; in each step before, C++ code reduced gradients, and Python called `LOG`.

    In `STEP`, C++ code had `reduced` before Python `called`.
    """
    begun = [0, *(FIRST + 1 + (GRADIENTS + 1) * step for step in range(STEP))]
    last = begun[-1] + reduced + called
    numbers = begun[1:] + [last] * called
    calls = tuple(
        Collective("0", seq, "all_reduce", ((1,),), ("Float",), frames=LOG, at=NOW - 40 + step, step=step,
                   thread_name="MainThread")
        for step, seq in enumerate(numbers)
    )  # fmt: skip
    steps = tuple(
        StepEntry(step, 0, step, 0, NOW - 40 + step, {"0": begun[step]}, optimizer_steps=step)
        for step in range(STEP + 1)
    )
    progress = Progress(step=STEP, epoch=0, batch=STEP, optimizer_steps=optimized)
    return gone(
        number, code, phase, calls=calls, steps=steps, progress=progress, issued=last, completed=last - 1, world_size=3,
        open_calls=calls[-1:] if called else (), evidence=evidence,
    )  # fmt: skip


def went_on(reduced: int = 0, **evidence: Any) -> RankEvidence:
    return ended(2, Phase.OPTIMIZER, optimized=STEP + 1, called=True, reduced=reduced, code=-6, **evidence)


def in_backward(number: int, phase: Phase = Phase.BACKWARD, optimized: int = STEP, *, called: bool = False) -> Any:
    return ended(number, phase, optimized=optimized, called=called)


@pytest.mark.parametrize("reduced", range(GRADIENTS))
def test_ranks_that_their_launcher_ended_in_backward_leave_no_stack_but_their_boards_tell_it(reduced: int) -> None:
    """GIVEN a rank past its optimizer without all its gradients WHEN gloo aborts it for a message of another size."""
    judgement = judge(in_backward(0), in_backward(1), went_on(reduced, last_output=SIZES), world_size=3)
    assert told(judgement) == ("data-dependent-graph", "likely", "failed"), judgement.verdict.summary
    assert [rank for rank, _, _ in blamed(judgement)] == [2]
    assert "in epoch 0, batch 6 (step 6) ended without all of its gradients" in judgement.verdict.summary


def test_a_rank_with_all_of_its_gradients_is_not_blamed() -> None:
    judgement = judge(in_backward(0), in_backward(1), went_on(GRADIENTS, last_output=SIZES), world_size=3)
    assert told(judgement)[0] != "data-dependent-graph"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(in_backward(1, Phase.STEP), id="it had made no forward"),
        pytest.param(in_backward(1, optimized=STEP + 1), id="it is past its optimizer"),
        pytest.param(in_backward(1, called=True), id="it had called something since"),
    ],
)
def test_a_rank_that_may_have_been_elsewhere_is_not_known_to_have_waited_in_backward(other: RankEvidence) -> None:
    judgement = judge(in_backward(0), other, went_on(last_output=SIZES), world_size=3)
    assert told(judgement)[0] != "data-dependent-graph"


def test_without_a_message_of_another_size_nothing_says_that_the_calls_were_mispaired() -> None:
    judgement = judge(in_backward(0), in_backward(1), went_on(), world_size=3)
    assert told(judgement)[0] != "data-dependent-graph"
