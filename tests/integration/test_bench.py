"""The benchmark with real jobs, as small as it can be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.commands.benchmark import gallery, peers
from hangwatch.gallery import CASES

pytestmark = pytest.mark.gallery

CASE = next(case for case in CASES if case.name == "rank-frozen")


def test_a_case_is_played_and_judged() -> None:
    run = gallery.play(gallery.Play(CASE, 0), 120.0)
    assert run.cause_right, run
    assert run.culprit_right, run
    assert run.named == (0,)
    assert run.detected_after_s is not None


def test_a_look_alike_is_no_alarm() -> None:
    control = gallery.control(gallery.Play(CASE, CASE.culprit, healthy=True), 120.0)
    assert control.alarm == ""
    assert control.finished


def test_the_analyser_of_torch_is_asked() -> None:
    found = peers.ask(gallery.Play(replace(CASE), 1), peers.ANALYSER, 25.0)
    assert found.peer == peers.ANALYSER
    assert found.said  # on gloo a KeyError; whatever it is, it is kept
