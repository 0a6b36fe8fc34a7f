"""`rank-local-decision`: a value of a rank's own decided about a call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Certainty, Frame, LoopFacts, RankEvidence, Status
from tests.unit.rules.step.decisions import END, SAVE, Program, blamed, changed, job, way
from tests.unit.rules.step.worlds import Groups, world
from tests.unit.simulator import SCRIPT, Call, Draw, World


@pytest.mark.parametrize(
    ("ranks", "alone", "named"),
    [(3, (1,), [1]), (4, (0, 1, 3), [2]), (2, (1,), [0, 1])],
    ids=["one saves", "one does not", "one of two"],
)
def test_a_condition_on_a_value_names_its_line_and_the_ranks_that_decided_otherwise(
    ranks: int, alone: tuple[int, ...], named: list[int]
) -> None:
    judgement = diagnose(job(ranks, alone, (way("value"),)))
    verdict = judgement.verdict
    assert (judgement.status, verdict.cause, verdict.certainty) == (
        Status.HUNG, "rank-local-decision", Certainty.PROVEN,
    )  # fmt: skip
    assert blamed(judgement) == [(rank, 28) for rank in named]
    assert (verdict.step.epoch, verdict.step.batch) == (0, 8)
    assert verdict.summary.startswith("`if loss < best` (train.py:28) came out differently on the ranks in epoch 0,")
    sentence = "the condition at train.py:28 asks neither for the rank nor for a value that was reduced or broadcast"
    assert any(said.startswith(sentence) for said in verdict.evidence), verdict.evidence
    assert "reduce or broadcast the value" in verdict.fix


def test_a_condition_that_is_alike_on_all_ranks_is_passed_over() -> None:
    judgement = diagnose(job(3, (1,), (way("alike", line=27), way("value"))))
    assert (judgement.verdict.cause, blamed(judgement)) == ("rank-local-decision", [(1, 28)])


@pytest.mark.parametrize(
    "ways",
    [
        (),
        (way("rank"),),
        (way("check"),),
        (way("alike"),),
        (way("value", of_turn=True),),
        (way("value"), way("check", line=29)),
    ],
    ids=["nothing read", "rank", "check", "alike", "continue", "two"],
)
def test_any_other_way_past_the_call_leaves_the_cause_as_it_was(ways: tuple[Bypass, ...]) -> None:
    assert diagnose(job(3, (1,), ways)).verdict.cause in ("rank-zero-only-collective", "skipped-collective")


def test_a_call_of_every_step_was_skipped_whatever_the_condition_asks() -> None:
    judgement = diagnose(job(3, (0, 2), (way("value"),), every_step=True))
    assert (judgement.verdict.cause, [rank for rank, _ in blamed(judgement)]) == ("skipped-collective", [1])


@pytest.mark.parametrize("around", [10, 27])
def test_a_condition_around_a_loop_over_parts_of_a_batch_decides(around: int) -> None:
    """A broadcast for each parameter, under a condition on the clock; line 10 draws the batches, line 27 does not."""
    parts = LoopFacts(Frame(SCRIPT, 29, "main"), outer=(Frame(SCRIPT, around, "main"),))
    snapshot = job(3, (1,), (replace(way("value"), inner=False),))

    def standing(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        loaders = tuple(replace(each, where=Frame(SCRIPT, 10, "main")) for each in entry.reading.loaders)
        stacks = tuple(replace(each, in_loop=True, loop=parts) for each in entry.stacks)
        return replace(entry, reading=replace(entry.reading, loaders=loaders), stacks=stacks)

    verdict = diagnose(changed(snapshot, standing)).verdict
    assert (verdict.cause == "rank-local-decision") is (around == 10)
    assert around != 10 or [who.rank for who in verdict.culprits] == [1]


@pytest.mark.parametrize(("in_loop", "cause"), [(False, "rank-local-decision"), (True, "collective-mismatch")])
def test_before_the_first_step_the_order_of_the_source_says_which_call_was_gone_by(in_loop: bool, cause: str) -> None:
    """Rank 0 finds a file and loads it at line 30, the others found none and are at line 40, where all come."""
    load, common = Call("all_gather", line=SAVE), Call("broadcast", line=40)

    def straight(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, in_loop=in_loop) for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    snapshot = changed(World([[load, common], [common], [common]]).run().snapshot(), straight)
    site = CallSite((Frame(SCRIPT, SAVE, "main"),), (way("value"),))
    judgement = diagnose(replace(snapshot, call_sites=(site,)))
    assert judgement.verdict.cause == cause, judgement.verdict.summary
    if not in_loop:
        assert blamed(judgement) == [(0, 28)]


@pytest.mark.parametrize(
    ("after", "clips", "named"),
    [
        pytest.param("dp", (3,), [3], id="the ranks of the other group did without"),
        pytest.param("dp", (0, 1, 3), [2], id="the ranks of the other group did it too"),
        pytest.param("0", (3,), [3], id="all others stand behind it"),
        pytest.param("0", (0, 1, 3), [2], id="the ranks of the other group stand behind it"),
    ],
)
def test_of_two_ranks_of_a_group_the_ranks_of_other_groups_tell_the_odd_one(
    after: str, clips: tuple[int, ...], named: list[int]
) -> None:
    """In batch 8 the ranks `clips` call within their group of two, as all did in batch 2."""
    groups: Groups = {"tp": [(0, 1), (2, 3)], "dp": [(0, 2), (1, 3)]}

    def program(rank: int) -> Program:
        made: Program = []
        for batch in range(12):
            clip = batch == 2 or (batch == 8 and rank in clips)
            made += [Draw(0, batch), *([Call(group="tp", line=SAVE)] if clip else []), Call(group=after, line=40)]
        return [*made, *END]

    site = CallSite((Frame(SCRIPT, SAVE, "main"),), (way("value"),))
    snapshot = world(*map(program, range(4)), groups=groups)
    judgement = diagnose(replace(snapshot, call_sites=(site,)))
    assert judgement.verdict.cause == "rank-local-decision", judgement.verdict.summary
    assert [rank for rank, _ in blamed(judgement)] == named, judgement.verdict.summary
