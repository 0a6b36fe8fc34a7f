from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch_agent.capture.stacks import by_faulthandler
from hangwatch_agent.shared.own_stacks import END
from tests.unit.agent.capture.made_up import process

TRACE = """Thread 0x00007f01 (most recent call first):
  File "/x/logger.py", line 10 in run

Thread 0x00007f02 [pt_data_worker] (most recent call first):
  File "/x/a b.py", line ??? in f

Current thread 0x00007f03 (most recent call first):
  File "/x/train.py", line 88 in step
  File "/x/train.py", line 99 in <module>
"""


def test_every_thread_and_the_last_is_the_main_one() -> None:
    logger, worker, main = by_faulthandler.parse(TRACE)
    assert [frame.line for frame in main.frames] == [88, 99]
    assert (main.main, main.name, main.thread_id, main.source) == (True, "MainThread", 0x7F03, "faulthandler")
    assert (worker.name, worker.frames[0].file, worker.frames[0].line) == ("pt_data_worker", "/x/a b.py", 0)
    assert (logger.main, logger.frames[0].function) == (False, "run")


def test_a_rank_that_is_interrupted_while_it_writes_is_waited_for(tmp_path: Path) -> None:
    """GIVEN a dump that stands still for a while in the middle of its last thread THEN its end is read too."""
    path, parts = tmp_path / "stacks-5.txt", [TRACE[:-40], "", "", TRACE[-40:]]
    path.write_text("10\n")

    def sleep(seconds: float) -> None:
        with path.open("a") as file:
            file.write(parts.pop(0) if parts else "")

    assert by_faulthandler._Appended(path, 3, lambda: False, sleep).within(30.0) == TRACE


def answered(tmp_path: Path, *writes: str, started_with: str = "10\n", taken_up: bool = True) -> str | None:
    """What is read of a ticker that writes one part at each look."""
    path, parts = tmp_path / "stacks-5.txt", list(writes)
    path.write_text(started_with)

    def sleep(seconds: float) -> None:
        if parts:
            with path.open("w" if parts[0].startswith("10") else "a") as file:
                file.write(parts.pop(0))

    ticker = by_faulthandler.Asked(lambda: None, lambda: taken_up)
    appended = by_faulthandler._Appended(path, len(started_with), lambda: False, sleep)
    return by_faulthandler._by_ticker(ticker, appended)


def test_what_the_ticker_writes_ends_with_its_mark(tmp_path: Path) -> None:
    """However long it is interrupted: the reader waits for the mark and not for stillness."""
    assert answered(tmp_path, TRACE[:40], *[""] * 9, TRACE[40:], "", END) == TRACE


def test_a_file_that_begins_anew_is_not_taken_for_an_answer_by_its_first_line(tmp_path: Path) -> None:
    assert answered(tmp_path, "10\n", *[""] * 9, TRACE + END, started_with="10\n" + TRACE * 9) == TRACE


def test_of_two_answers_the_last_counts(tmp_path: Path) -> None:
    assert answered(tmp_path, "old" + END + TRACE + END) == TRACE


def test_a_ticker_that_answers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_faulthandler, "SILENT_S", 0.02)
    monkeypatch.setattr(by_faulthandler, "WAIT_S", 0.02)
    assert answered(tmp_path, taken_up=False) is None
    assert answered(tmp_path, taken_up=True) == ""


def test_a_rank_that_ends_is_awaited_no_more(tmp_path: Path) -> None:
    """Its ticker cannot take up the question, and the job's report would come seconds later."""
    (tmp_path / "stacks-5.txt").write_text("10\n")
    looks: list[float] = []
    states = iter(["S", "S", "Z"])

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        stat.write_text(stat.read_text().replace(") S ", f") {next(states)} "))

    stat = process(tmp_path, 5) / "stat"
    ticker = by_faulthandler.Asked(lambda: None, lambda: False)
    taken = by_faulthandler.ask_faulthandler(5, tmp_path, ticker=ticker, proc=tmp_path, sleep=sleep)
    assert taken.failure
    assert len(looks) == 3


@pytest.mark.parametrize("text", ["", "nonsense\n", "Thread 0xzz (most recent call first):"])
def test_no_trace(text: str) -> None:
    assert list(by_faulthandler.parse(text)) == []


@pytest.mark.parametrize(
    ("caught", "number", "answer"),
    [("8000000000000000", 64, True), ("0000000000000200", 10, True), ("0000000000000200", 12, False)],
)
def test_whether_a_signal_is_caught(tmp_path: Path, caught: str, number: int, answer: bool) -> None:
    (process(tmp_path, 5) / "status").write_text(f"Name:\tpython\nSigCgt:\t{caught}\n")
    assert by_faulthandler.catches(5, number, tmp_path) is answer


def test_a_status_that_does_not_say(tmp_path: Path) -> None:
    (process(tmp_path, 5) / "status").write_text("Name:\tpython\n")
    assert not by_faulthandler.catches(5, 10, tmp_path)


@pytest.mark.parametrize("marker", ["", "zero\n", "0\n", "65\n", "-1\n"])
def test_markers_that_name_no_signal(tmp_path: Path, marker: str) -> None:
    (tmp_path / "stacks-5.txt").write_text(marker)
    assert by_faulthandler.ask_faulthandler(5, tmp_path).failure.startswith("no faulthandler")


def test_our_own_thread_has_its_name() -> None:
    ours = (
        'Thread 0x00007f00 (most recent call first):\n  File "/x/hangwatch_agent/rank/ticker.py", line 64 in _run\n\n'
    )
    assert [stack.name for stack in by_faulthandler.parse(ours + TRACE)][:2] == ["hangwatch-ticker", ""]
