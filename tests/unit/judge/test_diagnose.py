"""What `diagnose` says as a whole: a rule that fails, nothing to judge, no rank to blame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch import judge as diagnosis
from hangwatch.judge import Case, Finding, diagnose
from hangwatch.model import Certainty, ProcessFacts, RankEvidence, Status
from tests.unit.job import judge, starting, told
from tests.unit.rules.step.loops import GRADIENTS
from tests.unit.rules.step.worlds import STEP, world
from tests.unit.simulator import Call, Draw, Leave, World, blamed_ranks


def test_an_empty_snapshot_is_judged() -> None:
    assert told(judge()) == ("undetermined", "undetermined", "waiting")
    assert told(judge(replace(starting(0), reading=None, process=None), world_size=2))[2] in ("waiting", "hung")


def broken_rule(case: Case) -> Finding | None:
    raise KeyError("a rank that is not there")


@pytest.mark.faults_are_told
def test_what_was_found_is_told_though_the_verdict_cannot_be_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, odd = [*STEP * 3, Call("all_gather", line=20)], [*STEP * 3, Call("reduce_scatter", line=20)]
    snapshot = world(usual, odd, usual, usual)
    whole = diagnose(snapshot).verdict

    def fails(*evidence: object) -> None:
        raise RuntimeError("no waits")

    monkeypatch.setattr("hangwatch.judge.chain.chain", fails)
    verdict = diagnose(snapshot).verdict
    assert (verdict.cause, verdict.summary, verdict.culprits) == (whole.cause, whole.summary, whole.culprits)
    assert verdict.certainty is Certainty.LIKELY
    assert any("failed (RuntimeError('no waits')); please report it" in said for said in verdict.details)


@pytest.mark.faults_are_told
def test_a_rule_that_fails_is_left_out_and_nothing_is_proven_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, odd = [*STEP * 3, Call("all_gather", line=20)], [*STEP * 3, Call("reduce_scatter", line=20)]
    snapshot = world(usual, odd, usual, usual)
    healthy = diagnose(snapshot).verdict
    monkeypatch.setattr(diagnosis, "ORDER", (broken_rule, *diagnosis.ORDER))
    verdict = diagnose(snapshot).verdict
    assert (healthy.certainty, verdict.certainty) == (Certainty.PROVEN, Certainty.LIKELY)
    assert (verdict.cause, verdict.culprits) == (healthy.cause, healthy.culprits)
    assert "broken_rule of hangwatch failed (KeyError('a rank that is not there'))" in verdict.details[0]


def test_nothing_is_blamed_without_evidence() -> None:
    snapshot = world(STEP * 3, [*STEP * 3, Leave()])
    bare = replace(snapshot, ranks=tuple(RankEvidence(entry.rank) for entry in snapshot.ranks))
    judgement = diagnose(bare)
    assert judgement.verdict.cause == "undetermined"
    assert judgement.verdict.culprits == ()
    assert diagnose(replace(snapshot, ranks=())).verdict.cause in ("undetermined", "rendezvous-missing-ranks")


def test_a_job_whose_ranks_have_all_ended_well_is_not_hung() -> None:
    snapshot = world([Leave()], [Leave()])
    ended = tuple(
        replace(entry, still_s=900, process=ProcessFacts(4000 + entry.rank, "X", exit_code=0), stacks=())
        for entry in snapshot.ranks
    )
    assert diagnose(replace(snapshot, ranks=ended)).status is Status.WAITING


def test_a_difference_in_the_first_step_of_two_ranks_blames_none() -> None:
    # GIVEN two ranks that differ in their very first step, so that no earlier step says which one is right
    world = World([[Draw(0, 0), Call(line=5), *GRADIENTS], [Draw(0, 0), *GRADIENTS]]).run()

    # THEN no rank is blamed
    assert blamed_ranks(diagnose(world.snapshot())) == []
