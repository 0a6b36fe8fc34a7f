"""Ranks that wait in a circle over several groups, of which one stands in a call that no other rank ever makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Certainty, RankEvidence, Snapshot
from tests.unit.rules.step.worlds import Groups, Program, changed, world
from tests.unit.simulator import Call, Draw, blamed_ranks

GROUPS: Groups = {"pair": [(0, 1)]}
TURN: Program = [Draw(), Call(group="pair", line=13), Call(line=20)]
REPORT = Call("all_gather", line=70)


def _job(alone: int, *, turns: int = 3, again: Program | None = None) -> Snapshot:
    """In its last turn one of the two ranks of a pair reports to all, where the other one comes to their group."""
    last = [Draw(), REPORT, Call(group="pair", line=13)]
    programs = [[*TURN * turns, *(last if rank == alone else again or TURN)] for rank in range(2)]
    return world(*programs, groups=GROUPS)


@pytest.mark.parametrize("alone", [0, 1])
def test_the_one_in_a_call_that_is_new_to_all_is_to_blame(alone: int) -> None:
    judgement = diagnose(_job(alone))
    assert judgement.verdict.cause == "rank-zero-only-collective", judgement.verdict.summary
    assert blamed_ranks(judgement) == [alone]
    assert [who.where.line for who in judgement.verdict.culprits if who.where] == [70]
    assert judgement.verdict.certainty is Certainty.LIKELY
    assert (
        f"Rank {alone} is alone in all_gather (train.py:70), which the other ranks never call"
        in judgement.verdict.summary
    )
    assert any("ever called a collective at train.py:70" in each for each in judgement.verdict.evidence)


def test_where_both_came_to_new_calls_neither_is_alone() -> None:
    judgement = diagnose(_job(0, again=[Draw(), Call(group="pair", line=80)]))
    assert judgement.verdict.cause == "group-order-cycle"
    assert sorted(rank or 0 for rank in blamed_ranks(judgement)) == [0, 1]


def _without_the_first(entry: RankEvidence) -> RankEvidence:
    recent = tuple(call for call in entry.collectives.recent if call.seq > 3)
    return replace(entry, collectives=replace(entry.collectives, recent=recent))


def test_a_call_may_come_rarely_where_the_first_iterations_are_no_longer_known() -> None:
    whole = _job(1, turns=6)
    assert blamed_ranks(diagnose(whole)) == [1]
    assert diagnose(changed(changed(whole, 0, _without_the_first), 1, _without_the_first)).verdict.cause != (
        "rank-zero-only-collective"
    )
