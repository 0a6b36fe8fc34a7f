"""`gil-held`: a C call holds the interpreter lock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import RankEvidence, Status
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


@pytest.mark.parametrize(("still_s", "status"), [(200.0, Status.WAITING), (500.0, Status.HUNG)])
def test_a_c_call_that_computes_is_given_more_time(still_s: float, status: Status) -> None:
    found = changed(stuck("code", state="R", cpu_delta_s=0.9), 1, silent)
    judgement = diagnose(changed(found, 1, lambda entry: replace(entry, still_s=still_s, patience_s=120.0)))
    assert (judgement.verdict.cause, judgement.status) == ("gil-held", status)


def test_a_rank_whose_c_call_keeps_the_interpreter_lock_is_told_by_its_silent_ticker() -> None:
    judgement = diagnose(changed(stuck("sleep"), 1, silent))
    assert judgement.verdict.cause == "gil-held"
    assert blamed_ranks(judgement) == [1]
