"""Ranks that run their own code: what counts as work."""

from __future__ import annotations

from hangwatch.facts.own_code import how_stuck
from hangwatch.judge import diagnose
from hangwatch.model import ProcessEvidence, Status
from hangwatch.ranks.view import RankView
from tests.unit.job import LIB, frames, process, rank
from tests.unit.rules.step.worlds import stuck


def test_a_process_that_waits_for_a_processor_is_not_idle() -> None:
    snapshot = stuck("compile", state="R", cpu_delta_s=0.04)
    assert diagnose(snapshot).status is Status.WAITING


def test_a_rank_that_waits_for_a_child_names_it_though_it_has_no_stack_to_show() -> None:
    run = frames((f"{LIB}/selectors.py", 415, "select"), (f"{LIB}/subprocess.py", 2115, "_communicate"))
    facts = process(900, command="score --model m.pt", system_call="accept4", cpu_delta_s=0.0)
    late = rank(0, run, issued=10, completed=10, evidence={"children": (ProcessEvidence("child", facts),)})
    assert how_stuck(RankView(0, late, sampled_twice=True)) == (
        "it waits for its child process 900 (`score --model m.pt`), which is in accept4"
    )
