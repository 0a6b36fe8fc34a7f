"""Ranks that ran out of inputs within torch's Join, and calls of others for which it does not stand in."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.calls.joined import joined_too_early
from hangwatch.facts.case import Case
from hangwatch.model import Collective, Frame, RankEvidence
from tests.unit.job import C10D, SCRIPT, TORCH, blamed, judge, snapshot
from tests.unit.rules.step.aborts import dead, lost

BLOCK, LOG = Frame(SCRIPT, 10, "main"), Frame(SCRIPT, 19, "log")
JOIN = (Frame(f"{TORCH}/distributed/algorithms/join.py", 265, "__exit__"), BLOCK)
NOTIFY = (
    Frame(C10D, 3245, "all_reduce"),
    Frame(f"{TORCH}/distributed/algorithms/join.py", 340, "notify_join_context"),
    Frame(f"{TORCH}/nn/parallel/distributed.py", 1762, "_pre_forward"),
    Frame(SCRIPT, 12, "main"),
)
OWN = (Frame(C10D, 3245, "all_reduce"), LOG)


def calls(*frames: tuple[Frame, ...]) -> tuple[Collective, ...]:
    return tuple(
        Collective("0", 1 + at, "all_reduce", ((1,),), ("Float",), frames=each, at=900.0 + at, step=at)
        for at, each in enumerate(frames)
    )


def job(second: RankEvidence) -> tuple[RankEvidence, RankEvidence]:
    return replace(lost(0, calls(NOTIFY, NOTIFY, OWN, NOTIFY)), rank=0), second


JOINED = dead(1, calls(NOTIFY, JOIN, JOIN, JOIN))


def test_the_first_call_that_is_paired_with_one_of_joins() -> None:
    found = joined_too_early(Case(snapshot(*job(JOINED))))
    assert found is not None
    assert (found.ranks, found.others, found.call.seq) == ((1,), (0,), 3)


def test_a_rank_that_ran_out_within_join_is_no_rank_with_a_call_of_its_own() -> None:
    judgement = judge(*job(JOINED))
    assert judgement.verdict.cause == "uneven-steps"
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "it does not make all_reduce (train.py:19), which rank 0 called" in judgement.verdict.summary


def test_calls_of_modules_are_what_join_stands_in_for() -> None:
    healthy = dead(1, calls(NOTIFY, JOIN, OWN, JOIN))
    assert joined_too_early(Case(snapshot(*job(healthy)))) is None
