"""The load generator: what it makes of a dashboard that cannot keep up."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from hangwatch_dashboard import loadgen
from hangwatch_dashboard.loadgen import Figures, hang, report

ARGUMENTS = argparse.Namespace(nodes=0, ranks=8, seconds=1.0)
CAPTURE = {"state": "done", "asked_at": 10.0, "done_at": 12.5, "nodes_asked": ["a", "b"], "nodes_answered": ["a"]}
JOBS = {"jobs": [{"key": "resnet-1", "state_text": "hung"}]}


@pytest.fixture
def mute() -> Iterator[int]:
    """The port of a dashboard that takes connections and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_dashboard_that_does_not_answer_is_a_result(
    mute: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a dashboard that answers no GET in time
    monkeypatch.setattr(loadgen, "ANSWER_S", 0.05)
    figures = Figures()
    # WHEN a capture of all its nodes is awaited
    judged_s = asyncio.run(hang("127.0.0.1", mute, [], "", figures, longest_s=1.5))
    # THEN the generator goes on until the time is over, and says so
    assert math.isnan(judged_s)
    assert figures.during is not None
    assert figures.during.errors["GET: TimeoutError"] >= 1
    assert report(figures, 0, judged_s, ARGUMENTS) == 1
    said = capsys.readouterr().out
    assert "capture of all nodes: not judged within 90 s" in said
    assert "errors {'GET: TimeoutError': " in said


def test_a_judgement_after_a_get_without_an_answer_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[Any] = [TimeoutError("timed out"), JOBS, {"captures": []}, JOBS, {"captures": [CAPTURE]}]

    def get(url: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return json.loads(json.dumps(answer))

    monkeypatch.setattr(loadgen, "_get", get)
    figures = Figures()
    judged_s = asyncio.run(hang("127.0.0.1", 1, [], "", figures))
    assert (judged_s, answers) == (2.5, [])
    assert report(figures, 0, judged_s, ARGUMENTS) == 0
    said = capsys.readouterr().out
    assert "capture: done, 1 of 2 nodes answered in time: hung" in said
    assert "from the request to the judgement: 2.5 s" in said
