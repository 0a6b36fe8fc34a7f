"""`gil-held`: a C call holds the interpreter lock."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.judge import diagnose
from hangwatch.model import RankEvidence
from tests.unit.rules.step.worlds import changed, stuck
from tests.unit.simulator import blamed_ranks


def silent(entry: RankEvidence) -> RankEvidence:
    assert entry.reading is not None
    stacks = tuple(replace(stack, owns_gil=True) for stack in entry.stacks)
    reading = replace(entry.reading, ticker_at=entry.reading.taken_at - 60)
    return replace(entry, stacks=stacks, earlier_stacks=stacks, reading=reading)


def test_the_ticker_of_a_rank_that_gets_little_processor_time_is_silent_for_that() -> None:
    judgement = diagnose(changed(stuck("compile", state="R", cpu_delta_s=0.05), 1, silent))
    assert judgement.verdict.cause != "gil-held", judgement.verdict.summary


def test_a_rank_whose_c_call_keeps_the_interpreter_lock_is_told_by_its_silent_ticker() -> None:
    judgement = diagnose(changed(stuck("sleep"), 1, silent))
    assert judgement.verdict.cause == "gil-held"
    assert blamed_ranks(judgement) == [1]
