"""The advice of a verdict fits what its evidence shows, and is not only that of its cause: real programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Verdict
from hangwatch.report.incident import snapshot_of
from scripts import judged


def verdict_of(name: str) -> Verdict:
    return diagnose(snapshot_of([judged.incident(name)])).verdict


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("p43-barrier-in-a-destructor", "make no collective in `__del__`"),
        ("p43-step-tried-again", "keep collectives out of what is tried again after an error"),
        ("p43-learner-stops-without-its-send", "make as many sends as receives"),
        ("p43-lit-log-under-a-condition", "log it on every rank"),
        ("gallery-skipped-backward-memory", "mend the error; let all ranks vote"),
        ("gallery-skipped-gather", "let all ranks agree first whether to make it"),
        ("gallery-skipped-backward-nan", "never skip on one rank alone"),
        ("gallery-lone-validation", "evaluate with model.module"),
        ("h100-accel-save-state", "take it out of the condition at accel_save_state.py:86"),
        ("h100-report-subset", "let all ranks answer the condition at bad_samples.py:45 alike"),
        ("tracker-server-never-answers", "see why 127.0.0.1:18377 does not answer"),
        ("p36-pack-shards", "see why its loop does not end (`while not dst.exists()`)"),
        ("pool-process-ended-by-the-kernel", "concurrent.futures.ProcessPoolExecutor"),
        ("callback-for-the-main-process-alone", "take the check of the rank alone out of the condition at hooks.py:12"),
        ("state-dict-behind-a-return", "put the `return` at export.py:11 behind it"),
        ("stream-that-divides-its-files", "a dataset that is a stream divides itself"),
        ("trainer-resumed-on-one-rank", "go on from one batch on every rank"),
        ("semaphore-of-a-coroutine-not-given-back", "see which `await` of that coroutine does not end"),
        ("p40-fsdp-layerdrop", "draw with the same generator on all ranks"),
        ("models-of-unlike-shape", "build the same model on every rank"),
        ("head-without-a-part-in-the-loss-anywhere", "find_unused_parameters=True"),
        (
            "gradients-of-the-task-that-each-rank-drew",
            "behind `if p.grad is not None` (train.py:21): make that call",
        ),
        ("averages-by-the-clock-of-each-rank", "let the clock of rank 0 decide"),
        ("average-by-own-clock-until-the-end", "let all ranks decide alike whether to make that call"),
        ("pair-averages-with-one-own-blacklist", "let all members of a group decide alike"),
        ("gallery-blocked-on-lock", "see why that thread does not let go"),
    ],
)
def test_the_advice_fits_what_was_seen(name: str, advice: str) -> None:
    assert advice in verdict_of(name).fix


def test_who_repeats_a_step_after_an_error_is_told_with_the_clause_that_catches_it() -> None:
    verdict = verdict_of("p43-step-tried-again")
    assert "probably after an error that is caught at `except on` (train.py:24)" in verdict.summary
    assert [who.where.line for who in verdict.culprits if who.where] == [24]


@pytest.mark.parametrize("name", ["h100-accel-save-state", "p33-hsdp-dcp-one-replica", "h200-tp-rank0-validates-alone"])
def test_without_the_source_no_condition_is_named(name: str) -> None:
    snapshot = snapshot_of([judged.incident(name)])
    assert ": it is behind `if " in diagnose(snapshot).verdict.summary
    blind = diagnose(replace(snapshot, call_sites=())).verdict
    assert "behind" not in blind.summary
    assert blind.fix.startswith("make that call on every rank")
