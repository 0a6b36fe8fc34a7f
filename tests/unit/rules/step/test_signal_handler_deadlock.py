"""`signal-handler-deadlock`: a signal handler waits for what it interrupted."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.judge import diagnose
from hangwatch.model import RankEvidence
from tests.unit.rules.step.worlds import changed, stuck


def test_a_signal_handler_above_what_it_interrupted_is_named() -> None:
    def handling(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, handler="on_usr1") for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    judgement = diagnose(changed(stuck("lock"), 1, handling))
    assert judgement.verdict.cause == "signal-handler-deadlock"
    assert "on_usr1" in judgement.verdict.summary
