"""Every how many steps a rank synchronises its gradients."""

from __future__ import annotations

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.cadence import cadence, gaps_between
from tests.unit.rules.step.loops import GRADIENTS, Program
from tests.unit.simulator import Call, Draw, LoopEnd, World


def epochs(batches: int) -> Program:
    """Each epoch ends with a barrier."""
    found: Program = []
    for number in range(4):
        found += [each for batch in range(batches) for each in (Draw(number, batch), GRADIENTS[0])]
        found += [LoopEnd(), Call("barrier", line=30)]
    return found


@pytest.mark.parametrize("batches", [2, 3])
def test_calls_between_epochs_are_no_rhythm_of_the_gradients(batches: int) -> None:
    """By counts alone the last step of each epoch has a call more than the others."""
    case = Case(World([epochs(batches)] * 2).run().snapshot())
    assert cadence(case, 0, "0", 1) is None


def synchronising(*turns: int) -> Program:
    """24 batches, of which those have gradients that are synchronised."""
    gradients: Program = [Call(line=12, via="gradients")]
    return [action for batch in range(24) for action in (Draw(0, batch), *(gradients if batch in turns else ()))]


def test_further_collectives_of_the_first_synchronisation_are_no_part_of_the_rhythm() -> None:
    """DDP finds out about its buckets in the step after it."""
    program = synchronising(*range(1, 24, 2))
    rebuilt = [*program[:4], Call(line=12, via="gradients"), *program[4:]]
    case = Case(World([rebuilt] * 2).run().snapshot())
    assert cadence(case, 0, "0", 0) == 2


def test_numbers_of_steps_that_change_are_no_rhythm_and_have_gaps() -> None:
    case = Case(World([synchronising(2, 7, 9, 15, 18)] * 2).run().snapshot())
    assert cadence(case, 0, "0", 0) is None
    assert gaps_between(case, 0, "0", 0) == [5, 2, 6, 3]


def test_a_rank_that_synchronises_in_every_step_has_no_gaps() -> None:
    case = Case(World([synchronising(*range(24))] * 2).run().snapshot())
    assert gaps_between(case, 0, "0", 0) == []
