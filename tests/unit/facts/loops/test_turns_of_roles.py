"""Roles with a loop of their own each, of which one counts its steps: a rank that made a turn less than its like."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.loops.turns import fewer_turns
from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, Frame, LoopFacts, RankEvidence, Snapshot
from tests.unit.facts.loops.turning import SCRIPT
from tests.unit.rules.step.worlds import Program, with_ring, world
from tests.unit.simulator import Call, Draw, Peer

END = Call("barrier", line=58)
LEARN = LoopFacts(Frame(SCRIPT, 7, "main"), last=18)
ACT, OVER_PARAMETERS = Frame(SCRIPT, 32, "main"), Frame(SCRIPT, 37, "main")
PUBLISH = LoopFacts(OVER_PARAMETERS, outer=(ACT,), outer_leaves=((),), last=38)
SKIP = Frame(SCRIPT, 35, "main")


def learner(actor: int, turns: int) -> Program:
    turn: Program = [Draw(), Peer("recv", actor, line=9), Call(group="1", line=14), *[Call("broadcast", line=18)] * 2]
    return [*turn * turns, END]


def actor(of: int, turns: int) -> Program:
    """It has no optimizer, and so no steps."""
    turn: Program = [Peer("send", of, line=36), *[Call("broadcast", line=38)] * 2]
    return [*turn * turns, END]


def job(short: int, *, turns: int = 6, asks: str = "check") -> Snapshot:
    """Two learners, and an actor for each, of which the second one makes `short` turns."""
    found = world(learner(2, turns), learner(3, turns), actor(0, turns), actor(1, short), groups={"1": [(0, 1)]})
    past = Bypass(SKIP, "if bad(obs): continue", asks=asks, of_turn=True)
    sites = (
        CallSite((Frame(SCRIPT, 38, "main"),), (past,)),
        CallSite((Frame(SCRIPT, 36, "main"),), (replace(past, inner=True),)),
    )
    return replace(found, ranks=tuple(map(standing, found.ranks)), call_sites=sites)


def standing(entry: RankEvidence) -> RankEvidence:
    """No condition leads to any of these calls but one on the role, which its caller asks."""
    loops = {2: PUBLISH, 3: None}
    loop = loops.get(entry.rank, LEARN)
    stacks = tuple(replace(each, in_loop=loop is not None, loop=loop, guard="none") for each in entry.stacks)
    return with_ring(replace(entry, stacks=stacks))


def test_an_actor_behind_its_loop_made_a_turn_less_than_the_other_one() -> None:
    """GIVEN learners that count steps, and an actor whose loop lies behind theirs in the source
    WHEN one actor is at the end already THEN it lacks a turn, and its barrier is no mismatch of its own."""
    snapshot = job(short=5)
    short = fewer_turns(Case(snapshot))
    assert short is not None
    assert (short.left, short.inside, short.begun) == ((3,), (2,), {})
    verdict = diagnose(snapshot).verdict
    assert (verdict.cause, verdict.certainty) == ("skipped-collective", "likely"), verdict.summary
    assert [(each.rank, each.where) for each in verdict.culprits] == [(3, SKIP)]
    assert "rank 3 may have gone through a turn without its calls, at train.py:35 (`if bad(obs): continue`)" in (
        verdict.summary
    )
    assert "rank 1 made 6 receives with rank 3, which made 5 sends with it" in verdict.evidence


@pytest.mark.parametrize("asks", ["alike", "rank"])
def test_what_is_no_decision_of_a_rank_is_no_way_past_its_turn(asks: str) -> None:
    verdict = diagnose(job(short=5, asks=asks)).verdict
    assert (verdict.cause, [each.rank for each in verdict.culprits]) == ("uneven-steps", [3]), verdict.summary
    assert "train.py:35" not in verdict.summary


def test_a_role_that_has_made_no_calls_again_and_again_has_left_no_loop() -> None:
    assert fewer_turns(Case(job(short=0, turns=1))) is None


def test_actors_that_are_both_behind_their_loop_lack_no_turn_of_each_other() -> None:
    found = world(learner(2, 6), learner(3, 6), actor(0, 5), actor(1, 5), groups={"1": [(0, 1)]})
    snapshot = replace(found, ranks=tuple(standing(entry) if entry.rank != 2 else entry for entry in found.ranks))
    short = fewer_turns(Case(snapshot))
    assert short is None or 3 not in short.left
