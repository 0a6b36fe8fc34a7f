"""scripts/ablate.py: what each rule decides, of kept reports and of simulated jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch import judge
from hangwatch.judge import as_they_stood, diagnose, histories
from hangwatch.judge.order import ORDER
from hangwatch.report.incident import snapshot_of
from scripts import ablate, judged
from scripts.judged import Truth
from tests.examples import uneven_steps


def test_a_rule_that_a_verdict_rests_on_is_told_and_the_judge_is_as_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN one report, and what is true of it
    snapshot = snapshot_of([uneven_steps()])
    verdict = diagnose(snapshot).verdict
    ranks = tuple(who.rank for who in verdict.culprits if who.rank is not None)
    truth = Truth("short-shard", "rank 3 has fewer batches", (verdict.cause,), ranks)
    monkeypatch.setattr(judged, "truths", lambda: [truth])
    monkeypatch.setattr(judged, "incident", lambda name: replace(uneven_steps(), id=name))
    # WHEN it is judged without each rule
    assert ablate.main([]) == 0
    # THEN the rule of its cause was needed, all others are listed, and the judge asks all of them again
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(ablate.RULES)
    assert "step.uneven_steps.uneven_steps: found 1, needed 1, in the way 0 short-shard" in lines
    assert "step.rank_died.rank_died: found 0, needed 0, in the way 0" in lines
    assert judge.ORDER is ORDER
    assert vars(as_they_stood)["HISTORIES"] is histories.HISTORIES
    assert diagnose(snapshot).verdict == verdict


def test_simulated_jobs_are_asked_as_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(judged, "truths", list)
    assert ablate.main(["--world", "3", "--seed", "5"]) == 0
    assert " seed " in capsys.readouterr().out
