"""An error that came out of a DataLoader took its rank out of the loop, however much the rank did behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import ExceptionFacts, Frame, LoaderFacts, RankEvidence, StepEntry
from tests.unit.job import LOADER, NOW, SCRIPT, blamed, judge, told
from tests.unit.rules.step.aborts import EXTRA, calls, dead, lost

RAISED = (Frame(LOADER, 1567, "_process_data"), Frame(LOADER, 725, "__next__"))
WORKER = f"""Caught OSError in DataLoader worker process 1.
Original Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", line 54, in fetch
    data = [self.dataset[idx] for idx in possibly_batched_index]
  File "{SCRIPT}", line 14, in __getitem__
    raise OSError("image file is truncated")
OSError: image file is truncated
"""


def drawing(entry: RankEvidence, drawn: int, error: ExceptionFacts | None = None) -> RankEvidence:
    loader = LoaderFacts(0, 30, epoch=0, drawn=drawn, where=Frame(SCRIPT, 34, "main"))
    steps = tuple(StepEntry(n, 0, n, 0, NOW - 50 + n) for n in range(drawn))
    assert entry.reading is not None
    return replace(entry, reading=replace(entry.reading, loaders=(loader,), steps=steps, exception=error))


@pytest.mark.parametrize("message", [WORKER, "image file is truncated"])
def test_the_error_is_told_with_its_place_in_the_worker(message: str) -> None:
    where = () if message is WORKER else (Frame(SCRIPT, 14, "__getitem__"),)
    error = ExceptionFacts("OSError", message, (*where, *RAISED), at=NOW - 20, fatal=False)
    others = drawing(lost(0, calls(5)), 16, lost(0, calls(5)).reading.exception)  # type: ignore[union-attr]
    judgement = judge(others, drawing(dead(1, calls(5, EXTRA)), 15, error))
    assert told(judgement) == ("exception-on-one-rank", "likely", "failed")
    assert [number for number, _, _ in blamed(judgement)] == [1]
    (culprit,) = judgement.verdict.culprits
    assert culprit.where == Frame(SCRIPT, 14, "__getitem__")
    assert "Rank 1 raised OSError: image file is truncated" in judgement.verdict.summary
    assert "rank 1 has drawn no batch since: it had drawn 15 of 30 batches" in judgement.verdict.evidence


def test_an_error_after_which_it_went_on_is_none_that_took_it_out() -> None:
    error = ExceptionFacts("OSError", WORKER, RAISED, at=NOW - 45, fatal=False)
    others = drawing(lost(0, calls(5)), 16, lost(0, calls(5)).reading.exception)  # type: ignore[union-attr]
    judgement = judge(others, drawing(dead(1, calls(5, EXTRA)), 15, error))
    assert told(judgement)[0] != "exception-on-one-rank"


def test_errors_of_most_ranks_are_how_the_program_works() -> None:
    error = ExceptionFacts("OSError", WORKER, RAISED, at=NOW - 20, fatal=False)
    judgement = judge(*(drawing(dead(number, calls(5, EXTRA)), 15, error) for number in range(2)))
    assert told(judgement)[0] != "exception-on-one-rank"
