"""Attempts of a launcher, and tracebacks of which no line tells the rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs import Logs, nothing_of_use, read
from hangwatch.model import Verdict
from tests.unit.logs.lines import failure, gave_up, judged, set_up, table
from tests.unit.logs.test_ends import ANEW, UNTOLD
from tests.unit.logs.test_own_words import trace

BARE = [
    "Traceback (most recent call last):",
    '  File "/home/me/fit.py", line 31, in run',
    "    check(batch)",
    '  File "/home/me/checks.py", line 8, in check',
    '    raise KeyError("label")',
    "KeyError: 'label'",
]
REAPED = (
    "E1201 09:10:11.1 77 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 3"
    " (pid: 8103) of binary: /venv/bin/python3"
)
FAILED = "E1201 09:10:11.1 77 torch/distributed/elastic/agent/server/api.py:719] [default] Worker group FAILED."


def told(tmp_path: Path, *lines: str) -> Verdict:
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    return found.verdict


def unused(tmp_path: Path, *lines: str) -> tuple[str, ...]:
    path, logs = tmp_path / "plain.log", Logs()
    path.write_text("\n".join(lines) + "\n")
    assert not read(path, logs)
    return nothing_of_use([path], logs)


# ------------------------------------------------------------------------------------------ attempts


def test_an_attempt_that_failed_before_one_that_went_on_is_told(tmp_path: Path) -> None:
    first, second = unused(tmp_path, "step 1", trace(2, "ValueError: odd"), ANEW, "step 1", "step 2")
    assert first.startswith("nothing of a hang or failure is in the last attempt of this log (2 lines read); if ")
    assert second.startswith("the attempt before the last restart failed: Rank 2 raised an exception")
    assert "ValueError: odd" in second
    # AND where the last one has lines of use, and nothing is wrong in it
    ready = [set_up(rank, word, size=2) for rank in (0, 1) for word in ("START", "COMPLETE")]
    found = judged(tmp_path, "\n".join([trace(1, "ValueError: odd"), ANEW, *ready]))
    assert found.judgement is None
    assert found.sentences[1].startswith("the attempt before the last restart failed: Rank 1 raised")


def test_a_log_that_ends_with_a_restart_tells_of_the_attempt_before_it(tmp_path: Path) -> None:
    first, second = unused(tmp_path, trace(0, "ValueError: odd"), ANEW)
    assert first.startswith("the attempt before the last restart failed: Rank 0 raised")
    assert second.startswith("this log ends there; if the job stood still")


def test_of_several_restarts_the_attempt_before_the_last_one_is_told(tmp_path: Path) -> None:
    filler = ["step of an attempt that ran for long"] * 200
    lines = [trace(0, "ValueError: one"), ANEW, *filler, trace(1, "ValueError: two"), ANEW, "step 1"]
    said = unused(tmp_path, *lines)[1]
    assert "Rank 1 raised" in said
    assert "ValueError: two" in said


def test_a_healthy_log_without_restarts_tells_of_no_attempt(tmp_path: Path) -> None:
    (said,) = unused(tmp_path, *(f"{{'loss': {step}}}" for step in range(9)))
    assert said.startswith("nothing of a hang or failure is in this log (9 lines read); ")


# ------------------------------------------------------------------------------------------ tracebacks without a rank


@pytest.mark.parametrize(
    ("behind", "summary"),
    [
        (REAPED, "Local rank 3 (pid 8103) failed with exit code 1 (checks.py:8): KeyError: 'label'."),
        (FAILED, "A process of this job raised an exception (checks.py:8): KeyError: 'label'."),
        (table(failure(5, 1, UNTOLD, root=True)), "Rank 5 failed with exit code 1 (checks.py:8): KeyError: 'label'."),
    ],
)
def test_the_only_traceback_beside_a_process_that_failed_is_its_own(behind: str, summary: str, tmp_path: Path) -> None:
    found = told(tmp_path, "step 1", *BARE, behind)
    assert (found.cause, found.certainty, found.summary) == ("exception-on-one-rank", "likely", summary)
    (culprit,) = found.culprits
    assert culprit.where is not None
    assert (culprit.where.file, culprit.where.line) == ("/home/me/checks.py", 8)


def test_of_two_tracebacks_without_a_rank_neither_is_taken(tmp_path: Path) -> None:
    other = [line.replace("label", "mask") for line in BARE]
    assert told(tmp_path, *BARE, *other, REAPED).summary == "Local rank 3 (pid 8103) failed with exit code 1."
    # AND none where the process was killed
    assert "KeyError" not in told(tmp_path, *BARE, REAPED.replace("exitcode: 1", "exitcode: -9")).summary
    # AND the launcher's own, which follows from it, is not counted
    launcher = ["Traceback (most recent call last):", "torch.distributed.elastic.multiprocessing.errors.ChildFailed: "]
    assert "KeyError" in told(tmp_path, *BARE, *launcher, REAPED).summary


def test_a_traceback_that_may_have_been_caught_is_told_and_blamed_on_no_process(tmp_path: Path) -> None:
    first, second = unused(tmp_path, "step 1", *BARE, "step 2")
    assert first.startswith("nothing of a hang or failure is in this log (8 lines read)")
    assert second.endswith("no line tells whether that ended a process: KeyError: 'label' (checks.py:8)")
    # AND calls that were given up beside it are told without it
    assert told(tmp_path, *BARE, gave_up(0, 4), gave_up(1, 4)).cause != "exception-on-one-rank"


def test_an_error_file_that_holds_no_exit_code_states_none(tmp_path: Path) -> None:
    path = tmp_path / "attempt_0" / "6" / "error.json"
    path.parent.mkdir(parents=True)
    stack = '  File \\"/home/me/fit.py\\", line 4, in run\\n'
    path.write_text(f'{{"message": {{"message": "TypeError: no", "extraInfo": {{"py_callstack": "{stack}"}}}}}}')
    assert read(path, logs := Logs())
    assert logs.failures[6].exit_code is None
