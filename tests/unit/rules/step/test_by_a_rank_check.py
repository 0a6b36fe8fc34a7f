"""`skipped-collective`: the few went by a call under a condition on the rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import CallSite, Certainty, Frame, Judgement, RankEvidence
from tests.unit.rules.step.decisions import SAVE, blamed, changed, way
from tests.unit.simulator import SCRIPT, Call, World


def judged(asks: str, *without: int, ranks: int = 3, in_loop: bool = False) -> Judgement:
    """Before the first step: `without` returned ahead of a barrier, and are in a call behind it."""

    def straight(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, in_loop=in_loop) for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    made, common = Call("barrier", line=SAVE), Call("all_gather", line=40)
    programs = [[common] if rank in without else [made, common] for rank in range(ranks)]
    snapshot = changed(World(programs).run().snapshot(), straight)
    site = CallSite((Frame(SCRIPT, SAVE, "main"),), (way(asks),))
    return diagnose(replace(snapshot, call_sites=(site,)))


def test_the_rank_that_returned_ahead_of_a_barrier_left_it_out() -> None:
    judgement = judged("rank", 0)
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("skipped-collective", Certainty.LIKELY)
    assert blamed(judgement) == [(0, 28)]
    assert "Rank 0 went by barrier (train.py:30), probably at train.py:28" in judgement.verdict.summary
    assert "move it out of the branch on the rank" in judgement.verdict.fix


@pytest.mark.parametrize(
    ("without", "ranks"), [((0, 1), 3), ((0,), 2)], ids=["the one that calls it is odd", "of two halves"]
)
def test_only_the_few_went_by(without: tuple[int, ...], ranks: int) -> None:
    assert "went by" not in judged("rank", *without, ranks=ranks).verdict.summary


def test_in_a_loop_the_order_of_the_lines_says_nothing() -> None:
    assert "went by" not in judged("rank", 0, in_loop=True).verdict.summary


def test_the_rank_for_which_a_check_did_not_hold_left_out_a_call_that_is_new_to_all() -> None:
    """The first gather of an evaluation stands behind `if not self.predictions: return`; one rank had none."""
    judgement = judged("check", 2)
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("skipped-collective", Certainty.LIKELY)
    assert blamed(judgement) == [(2, 28)]
    assert "the branch on the rank" not in judgement.verdict.fix
