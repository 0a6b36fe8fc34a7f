"""`compile-skew`: one rank still compiles."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.judge import diagnose
from hangwatch.model import Frame, RankEvidence, Status
from tests.unit.rules.step.worlds import changed, stuck


def test_a_rank_that_compiles_is_waited_for() -> None:
    judgement = diagnose(stuck("compile", cpu_delta_s=0.9))
    assert judgement.verdict.cause == "compile-skew"
    assert judgement.status is Status.WAITING


def test_a_rank_that_runs_compiled_code_does_not_compile() -> None:
    """torch's wrappers stay on the stack while compiled code runs, and computes or waits."""
    wrapper = Frame("/venv/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py", 655, "_fn")

    def wrapped(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(
            replace(
                stack,
                frames=tuple(
                    wrapper if "_inductor" in each.file or "_dynamo" in each.file else each for each in stack.frames
                ),
            )
            for stack in entry.stacks
        )
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    snapshot = stuck("compile", cpu_delta_s=0.9)
    assert diagnose(snapshot).verdict.cause == "compile-skew"
    assert diagnose(changed(snapshot, 1, wrapped)).verdict.cause != "compile-skew"
