"""Ranks that run their own code: what counts as work."""

from __future__ import annotations

from hangwatch.judge import diagnose
from hangwatch.model import Status
from tests.unit.rules.step.worlds import stuck


def test_a_process_that_waits_for_a_processor_is_not_idle() -> None:
    snapshot = stuck("compile", state="R", cpu_delta_s=0.04)
    assert diagnose(snapshot).status is Status.WAITING
