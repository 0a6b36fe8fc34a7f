"""py-spy's answers, and programs in its place that do not behave."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hangwatch.model import Frame
from hangwatch_agent.capture.stacks import py_spy
from hangwatch_agent.capture.stacks.py_spy import Dump, bare_name, dump, parse


def frame(name: str, **other: Any) -> dict[str, Any]:
    return {"name": name, "filename": "/x/train.py", "module": None, "line": 3, "locals": None, **other}


def thread(tid: int = 7, name: str | None = None, *frames: dict[str, Any]) -> dict[str, Any]:
    flags = {"active": False, "owns_gil": True}
    return {"pid": 7, "thread_id": 1, "thread_name": name, "os_thread_id": tid, "frames": list(frames), **flags}


def program(folder: Path, code: str) -> Path:
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)
    return path


def test_the_main_thread_comes_first() -> None:
    first, second = parse([thread(9, "logger"), thread(7)])
    assert (first.main, first.name, first.thread_id, first.owns_gil) == (True, "MainThread", 7, True)
    assert (second.main, second.name) == (False, "logger")


def test_frames_have_bare_names_and_native_ones_their_library() -> None:
    native = frame("gloo::Context::wait", filename="/x/libtorch.so", module="/x/libtorch.so", line=0)
    (stack,) = parse([thread(7, None, native, frame("Queue.get"), frame("f.<locals>.<listcomp>"))])
    assert stack.frames == (
        Frame("/x/libtorch.so", 0, "gloo::Context::wait", native=True),
        Frame("/x/train.py", 3, "get"),
        Frame("/x/train.py", 3, "<listcomp>"),
    )


@pytest.mark.parametrize(("qualified", "bare"), [("<module>", "<module>"), ("a.b", "b"), ("f.", "f."), ("", "")])
def test_bare_names(qualified: str, bare: str) -> None:
    assert bare_name(qualified) == bare


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("echo '[]'; exit 0", ""),
        ("echo 'not json'", "cannot be understood"),
        ("echo '{}'", "cannot be understood"),
        ("""echo '[{"pid": 1}]'""", "cannot be understood"),
        ("echo 'Error: something new' >&2; exit 3", "Error: something new"),
        ("exit 3", "py-spy exited with code 3"),
        ("kill -9 $$", "was ended by signal 9"),
    ],
)
def test_answers_that_are_none(tmp_path: Path, code: str, failure: str) -> None:
    taken = dump(os.getpid(), program=program(tmp_path, code), timeout_s=60)
    assert failure in taken.failure
    assert taken.ok == (failure == "")


def test_a_program_that_hangs_is_given_up(tmp_path: Path) -> None:
    taken = dump(1, program=program(tmp_path, "exec sleep 60"), timeout_s=0.2043)
    assert taken.failure == "py-spy gave no answer within 0.2 s"
    assert 0.1 < taken.took_s < 30


def test_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not start" in dump(1, program=tmp_path / "nothing").failure
    monkeypatch.setattr(py_spy, "find_py_spy", lambda: None)
    assert dump(1).failure == "py-spy is not installed: pip install py-spy"


def test_no_process_to_look_at() -> None:
    assert py_spy.dump_all([]) == {}


def test_the_note_of_a_dump() -> None:
    note = Dump(7, failure="refused", took_s=0.5).note(3)
    assert (note.source, note.ok, note.detail, note.rank) == ("stacks", False, "pid 7: refused", 3)
    assert Dump(7).note().detail == ""


def test_local_variables_are_dropped_but_for_a_few_of_torchs_own(tmp_path: Path) -> None:
    """GIVEN a dump with all variables of all frames WHEN it is taken THEN those of the user are nowhere in it."""
    secret = {"name": "password", "repr": "'geheim'", "addr": 1, "arg": False}
    index = {"name": "idx", "repr": "17", "addr": 1, "arg": False}
    fetch = "/venv/torch/utils/data/_utils/fetch.py"
    frames = (frame("load", locals=[secret, index]), frame("fetch", filename=fetch, locals=[index, secret]))
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps([thread(7, None, *frames)]))
    taken = dump(7, with_locals=True, program=program(tmp_path, f"cat {answer}"))
    assert taken.ok, taken.failure
    assert [each["locals"] for each in taken.raw[0]["frames"]] == [[], [index]]
    assert "geheim" not in repr(taken)


def test_our_own_thread_has_a_name_though_python_gives_it_none() -> None:
    ticker = thread(9, None, frame("wait"), frame("_run", filename="/x/hangwatch_agent/rank/ticker.py"))
    _, ours, other = parse([thread(7), ticker, thread(8, None, frame("work"))])
    assert (ours.name, other.name) == ("hangwatch-ticker", "")
