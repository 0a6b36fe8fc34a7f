from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch_agent.capture.rank import outputs
from tests.unit.agent.capture.made_up import process


def test_the_last_lines_without_colours_and_bars(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "\n".join(f"line {n}" for n in range(50))
        + "\n\x1b[32mgreen\x1b[0m \x1b]0;title\x07\n 10%|#  |\r 50%|## |\r100%|###|\n\n  \n--token hunter2hunter2\n"
    )
    assert outputs.tail(log, lines=4).split("\n") == ["line 49", "green", "100%|###|", "--token [redacted]"]


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (50 << 20) + b"\nend\n")
    assert outputs.tail(log, lines=1) == "end"
    assert len(outputs.tail(log)) < 1000


@given(st.binary(max_size=200))
def test_any_bytes_give_a_text(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    log = tmp_path_factory.getbasetemp() / "any.log"
    log.write_bytes(content)
    text = outputs.tail(log)
    assert "\x1b" not in text
    assert len(text.split("\n")) <= outputs.LINES + outputs.MOST_TELLING


def test_no_log(tmp_path: Path) -> None:
    assert outputs.tail(tmp_path / "nothing") == ""
    assert outputs.tail(tmp_path) == ""
    assert outputs.crash_trace(tmp_path, 5) == ""


def test_logs_of_a_process_are_regular_files_only(tmp_path: Path) -> None:
    folder = process(tmp_path / "proc", 5)
    log = tmp_path / "err.log"
    log.write_text("boom\n")
    (folder / "fd/1").symlink_to("/dev/null")
    (folder / "fd/2").symlink_to(log)
    assert outputs.log_files(5, tmp_path / "proc") == (log,)
    assert outputs.of_rank(5, (), {}, tmp_path / "proc") == "boom"
    assert outputs.log_files(6, tmp_path / "proc") == ()


def test_torchruns_error_file_and_logs(tmp_path: Path) -> None:
    error = {
        "message": {"message": "RuntimeError: boom", "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1"}}
    }
    (tmp_path / "error.json").write_text(json.dumps(error))
    (tmp_path / "stderr.log").write_text("before\n")
    environment = {"TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")}
    assert outputs.of_rank(1 << 22, (), environment) == "before\nTraceback ..."


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('{"message": "plain"}', "plain"),
        ('{"message": {"message": "inner"}}', "inner"),
        ('{"message": {"extraInfo": 3}}', ""),
        ("[]", ""),
        ("{", ""),
        ("[" * 100_000, ""),
    ],
)
def test_error_files_of_any_shape(tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "error.json").write_text(content)
    assert outputs.elastic_error({"TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")}) == text
    assert outputs.elastic_error({}) == ""


def test_a_line_that_tells_of_an_end_is_kept_though_many_follow(tmp_path: Path) -> None:
    log = tmp_path / "log"
    abort = "op.preamble.length <= op.nbytes. 676 vs 4. Received data size doesn't match expected size."
    log.write_text("\n".join(["start", abort, *(f"line {n}" for n in range(50))]))
    assert outputs.tail(log, lines=2).split("\n") == [abort, "line 48", "line 49"]


def test_what_hangwatch_wrote_of_an_earlier_attempt_is_no_word_of_the_rank(tmp_path: Path) -> None:
    ours = "hangwatch: FAILED, 0.6 s after the last step\n\n  Rank 2 raised RuntimeError: CUDA error: bad (a.py:4)."
    log = tmp_path / "log"
    log.write_text(
        f"step 7\n{ours}\n\n  who     rank 2\nhangwatch: watches the job again\nterminate called\n  what():  x\n"
    )
    assert outputs.tail(log) == "step 7\nterminate called\n  what():  x"


@pytest.mark.parametrize(("target", "kind"), [("/dev/null", "/dev/null"), ("fifo", "a pipe"), ("err.log", "")])
def test_what_cannot_be_read_is_named(tmp_path: Path, target: str, kind: str) -> None:
    folder = process(tmp_path / "proc", 5)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "err.log").write_text("")
    (folder / "fd/2").symlink_to(target if target.startswith("/") else tmp_path / target)
    assert outputs.unreadable(5, tmp_path / "proc") == kind
    assert outputs.unreadable(6, tmp_path / "proc") == ""
