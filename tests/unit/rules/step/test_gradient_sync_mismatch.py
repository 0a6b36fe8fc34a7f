"""`gradient-sync-mismatch`: gradients are synchronised at different intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.parting import Left, parting
from hangwatch.model import Collectives, ProcessFacts
from hangwatch.rules.step.gradient_sync_mismatch import cadence, gradient_sync_mismatch
from tests.unit.rules.step.loops import END, GRADIENTS, Program, judged
from tests.unit.rules.step.worlds import with_ring
from tests.unit.simulator import Call, Draw, LoopEnd, World, blamed_ranks


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_accumulation_over_other_numbers_of_batches_is_told_by_the_rhythm(ranks: int) -> None:
    def accumulating(every: int) -> Program:
        steps = ([Draw(0, batch), *(GRADIENTS if (batch + 1) % every == 0 else ())] for batch in range(48))
        return [*(action for step in steps for action in step), LoopEnd(), *END]

    judgement = judged(accumulating(4), accumulating(2), ranks, 1)
    assert judgement.verdict.cause == "gradient-sync-mismatch"
    assert blamed_ranks(judgement) == [1]


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


def test_counts_of_a_rank_that_has_ended_are_not_compared_with_recorded_calls_of_others() -> None:
    """It has left no record of backward's calls; what it called from Python every other step is another rhythm."""

    def logging(batches: int) -> Program:
        log: Program = [Call("all_gather", line=60)]
        steps: list[Program] = [[Draw(0, batch), GRADIENTS[0], *(log if batch % 2 else [])] for batch in range(batches)]
        return [*[action for step in steps for action in step], LoopEnd()]

    snapshot = World([logging(15), logging(16), logging(16)]).run().snapshot()
    ended = replace(snapshot.ranks[0], collectives=Collectives(snapshot.ranks[0].collectives.heads))
    assert gradient_sync_mismatch(Case(replace(snapshot, ranks=(ended, *snapshot.ranks[1:])))) is None


def _synchronising(every: int, *gradients: Call, turns: int = 24) -> Program:
    found: Program = []
    for batch in range(turns):
        found += [Draw(0, batch), *(gradients if (batch + 1) % every == 0 else ())]
    return found


@pytest.mark.parametrize("via", ["gradients", "python"])
def test_a_rhythm_is_told_in_a_failed_job_and_by_its_line_where_python_calls(via: str) -> None:
    usual, odd = (_synchronising(every, *[Call(line=14, via=via)] * 3) for every in (4, 6))
    snapshot = World([odd if rank == 2 else usual for rank in range(3)]).run().snapshot()
    ended = replace(snapshot.ranks[0], process=ProcessFacts(4000, "X", exit_code=-6), stacks=())
    ranks = (ended, *snapshot.ranks[1:])
    if via == "python":  # the board has what Python code issued
        ranks = tuple(map(with_ring, ranks))
    finding = gradient_sync_mismatch(Case(replace(snapshot, ranks=ranks)))
    assert finding is not None
    assert [who.rank for who in finding.culprits] == [2]
    what = "their gradients" if via == "gradients" else "(train.py:14)"
    sides = "ranks 0-1 every 4 batches and rank 2 every 6 batches"
    assert finding.summary == f"The ranks synchronise {what} at different intervals: {sides}."


def test_further_collectives_of_the_first_synchronisation_are_no_part_of_the_rhythm() -> None:
    """DDP finds out about its buckets in the step after it."""
    program = _synchronising(2, Call(line=12, via="gradients"))
    rebuilt = [*program[:4], Call(line=12, via="gradients"), *program[4:]]
    case = Case(World([rebuilt] * 2).run().snapshot())
    assert cadence(case, 0, "0", 0) == 2


def test_one_step_that_a_rank_left_out_makes_no_rhythm() -> None:
    """Two models in turn issue one and two calls; a rank without any in one step keeps the rhythm of the others."""

    def alternating(skipped: int | None) -> Program:
        one: Program = [Call(line=12, via="gradients")]
        turn = [[Draw(0, batch), *one * (0 if batch == skipped else 1 + batch % 2)] for batch in range(20)]
        return [action for step in turn for action in step]

    snapshot = World([alternating(None), alternating(14)]).run().snapshot()
    ranks = tuple(replace(each, collectives=Collectives(each.collectives.heads)) for each in snapshot.ranks)
    case = Case(replace(snapshot, ranks=ranks))
    assert case.divergences
    assert gradient_sync_mismatch(case) is None
    found = parting(case)
    assert found is not None
    assert (found.how, found.who) == (Left.SKIPPED, (1,))
    assert "rank 1 issued 1 or 2 in every earlier step that is recorded" in [each.says for each in found.witnesses]
