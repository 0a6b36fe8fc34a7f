"""Ranks that their backend ended behind a loop: the loops in which they and the others stood are known to the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.loops.turns import fewer_turns
from hangwatch.model import Frame, LoopFacts, Phase, Progress, RankEvidence
from hangwatch.stacks.frames import stacks_of_error
from tests.unit.job import SCRIPT, blamed, gone, judge, snapshot
from tests.unit.job import told as said
from tests.unit.rules.step.aborts import MODULE, dead, lost
from tests.unit.rules.step.aborts import calls as made

OUTER, INNER = Frame(SCRIPT, 12, "main"), Frame(SCRIPT, 3, "solve")
BREAK = Frame(SCRIPT, 9, "solve")
TURN, BEHIND = (Frame(SCRIPT, 6, "solve"), Frame(SCRIPT, 13, "main"), MODULE), (Frame(SCRIPT, 14, "main"), MODULE)
INSIDE = LoopFacts(INNER, counted=True, leaves=(BREAK,), outer=(OUTER,))
AROUND = LoopFacts(OUTER, counted=True)
LOST = "Read error [127.0.0.1]:61094: Connection reset by peer"


def standing(entry: RankEvidence, loop: LoopFacts, guard: str = "none") -> RankEvidence:
    stacks = tuple(replace(each, in_loop=True, loop=loop, guard=guard) for each in entry.stacks)
    assert stacks
    assert entry.reading is not None
    progress = replace(entry.reading.progress, step=-1, epoch=None, batch=None)
    return replace(entry, stacks=stacks, reading=replace(entry.reading, progress=progress))


def in_the_loop(number: int) -> RankEvidence:
    """It lost the rank that was aborted, in the next turn of the inner loop."""
    found = lost(number, made(5, TURN, gap=1, site=TURN), LOST)
    assert found.reading is not None
    return standing(replace(found, stacks=stacks_of_error(found.reading.exception)), INSIDE)


def behind_it(number: int, guard: str = "none") -> RankEvidence:
    """It had gone on to the call behind the inner loop, and gloo aborted it there."""
    return standing(dead(number, made(5, BEHIND, gap=1, site=TURN)), AROUND, guard)


def test_the_rank_behind_the_inner_loop_has_left_it() -> None:
    short = fewer_turns(Case(snapshot(in_the_loop(0), behind_it(1))))
    assert short is not None
    assert (short.left, short.inside) == ((1,), (0,))


def test_the_way_out_of_the_loop_is_the_cause_and_no_call_too_many() -> None:
    judgement = judge(in_the_loop(0), behind_it(1), in_the_loop(2))
    assert said(judgement)[:2] == ("early-exit", "likely")
    assert [rank for rank, _, _ in blamed(judgement)] == [1]
    assert "may have left it at train.py:9" in judgement.verdict.summary
    assert "rank 1 stood outside of that loop (train.py:14)" in judgement.verdict.evidence
    assert judgement.verdict.summary.endswith("Then rank 1 was aborted by gloo.")


@pytest.mark.parametrize(
    ("steps", "counts"), [((3,) * 6, False), (range(6), True)], ids=["in one step", "in a step each"]
)
def test_several_turns_in_one_step_are_no_steps(steps: Sequence[int], counts: bool) -> None:
    """A loop over tokens, in a step of the training: that a rank left it after so many steps says nothing."""

    def at_steps(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        calls = tuple(replace(call, step=step) for call, step in zip(entry.reading.calls, steps, strict=False))
        progress = replace(entry.reading.progress, step=steps[-1])
        return replace(entry, reading=replace(entry.reading, calls=calls, progress=progress))

    short = fewer_turns(Case(snapshot(*map(at_steps, (in_the_loop(0), behind_it(1), in_the_loop(2))))))
    assert short is not None
    assert (short.left, short.inside) == ((1,), (0, 2))
    assert bool(short.begun) is counts


def test_behind_a_rank_check_it_has_left_no_loop() -> None:
    assert fewer_turns(Case(snapshot(in_the_loop(0), behind_it(1, guard="rank")))) is None
    assert said(judge(in_the_loop(0), behind_it(1, guard="rank"), in_the_loop(2)))[0] != "early-exit"


def test_a_rank_that_has_never_been_in_the_loop_may_yet_reach_it() -> None:
    entry = standing(dead(1, made(5, BEHIND, gap=1, site=BEHIND)), AROUND)
    assert fewer_turns(Case(snapshot(in_the_loop(0), entry))) is None


def test_an_error_that_did_not_end_the_process_leaves_no_last_stack() -> None:
    found = lost(0, made(5))
    assert found.reading is not None
    error = found.reading.exception
    assert error is not None
    (stack,) = stacks_of_error(error)
    assert (stack.main, stack.source, stack.frames) == (True, "error", error.frames)
    assert stacks_of_error(replace(error, fatal=False)) == stacks_of_error(None) == ()
    assert not stacks_of_error(replace(error, thread="loader"))[0].main


def finished(number: int) -> RankEvidence:
    """It ended in the middle of the job, with exit code 0."""
    return gone(number, 0, Phase.STEP, progress=Progress(step=5), calls=made(5))


def test_a_rank_that_ended_its_process_in_the_loop_is_told_with_the_line() -> None:
    loop = replace(INSIDE, leaves=(), outer_leaves=((),), exits=(Frame(SCRIPT, 18, "main"),))
    others = [standing(in_the_loop(number), loop) for number in (0, 2)]
    others = [
        replace(each, reading=replace(each.reading, progress=Progress(step=6)))  # type: ignore[type-var]
        for each in others
    ]
    judgement = judge(others[0], finished(1), others[1])
    assert said(judgement)[:2] == ("early-exit", "likely")
    assert [rank for rank, _, _ in blamed(judgement)] == [1]
    assert "rank 1 may have ended at train.py:18" in judgement.verdict.summary
    assert "the process can end in the loop at train.py:12, at train.py:18" in judgement.verdict.evidence


FIRST = (Frame(SCRIPT, 3, "average"), Frame(SCRIPT, 14, "main"), MODULE)  # a call behind the loop, where none had been
TAKES = LoopFacts(INNER, counted=True, swallows=Frame(SCRIPT, 11, "solve"), outer=(OUTER,), last=10)


def in_step(entry: RankEvidence, step: int = 5) -> RankEvidence:
    assert entry.reading is not None
    return replace(entry, reading=replace(entry.reading, progress=Progress(step=step)))


def came_to_the_end(number: int, guard: str = "none") -> RankEvidence:
    entry = dead(number, made(5, FIRST, gap=1, site=TURN))
    return in_step(standing(entry, LoopFacts(Frame(SCRIPT, 2, "average"), counted=False, outer=(OUTER,)), guard))


def in_its_turn(number: int) -> RankEvidence:
    return in_step(standing(in_the_loop(number), TAKES))


def test_a_rank_at_the_first_call_behind_the_loop_that_all_come_to_has_left_it_too() -> None:
    judgement = judge(in_its_turn(0), came_to_the_end(1), in_its_turn(2))
    assert said(judgement)[:2] == ("exception-on-one-rank", "likely"), judgement.verdict.summary
    assert [rank for rank, _, _ in blamed(judgement)] == [1]
    assert "caught silently at train.py:11" in judgement.verdict.summary


@pytest.mark.parametrize("guard", ["rank", "other"])
def test_at_a_call_that_a_condition_leads_to_it_has_left_no_loop(guard: str) -> None:
    judgement = judge(in_its_turn(0), came_to_the_end(1, guard), in_its_turn(2))
    assert said(judgement)[:2] == ("rank-zero-only-collective", "likely"), judgement.verdict.summary


def test_others_in_a_later_step_have_gone_by_its_call_and_do_not_come_there() -> None:
    judgement = judge(in_step(in_its_turn(0), 6), came_to_the_end(1), in_step(in_its_turn(2), 6))
    assert said(judgement)[:2] == ("rank-zero-only-collective", "likely"), judgement.verdict.summary
