"""The file for which a loop of the program's looks again and again."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from hangwatch_agent.rank.polled import Polled
from hangwatch_agent.rank.polled_file import polled_file


class Marker:
    def __init__(self, path: Path, over: threading.Event) -> None:
        self.path, self.over = path, over

    @property
    def asked(self) -> Path:
        raise AssertionError("code of the program was run")

    def condition(self) -> None:
        while not self.path.exists():
            time.sleep(0.005)

    def function(self) -> None:
        path = os.fspath(self.path)
        while not os.path.isfile(path):  # noqa: PTH113
            time.sleep(0.005)

    def within(self) -> None:
        target = self.path
        while True:
            if target.is_file():
                break
            time.sleep(0.005)

    def by_a_property(self) -> None:
        while not self.over.is_set():
            time.sleep(0.005)
            if self.over.is_set() and self.asked.exists():
                break

    def otherwise(self) -> None:
        while not self.over.is_set():
            time.sleep(0.005)


def seen(loop: Callable[[], None], over: threading.Event, path: Path) -> str:
    """What is told of a thread in that loop, at the first look that tells anything, or at the last of some."""
    thread = threading.Thread(target=loop)
    thread.start()
    found, deadline = "", time.monotonic() + 20
    for _ in range(200):
        found = polled_file(sys._current_frames().get(thread.ident or 0))
        if found or time.monotonic() > deadline:
            break
        time.sleep(0.005)
    over.set()
    path.touch()
    thread.join()
    return found


@pytest.mark.parametrize("loop", [Marker.condition, Marker.function, Marker.within])
def test_the_path_that_a_loop_looks_for(tmp_path: Path, loop: Callable[[Marker], None]) -> None:
    path, over = tmp_path / "done", threading.Event()
    assert seen(lambda: loop(Marker(path, over)), over, path) == str(path)


@pytest.mark.parametrize("loop", [Marker.by_a_property, Marker.otherwise])
def test_a_loop_that_asks_for_something_else(tmp_path: Path, loop: Callable[[Marker], None]) -> None:
    path, over = tmp_path / "done", threading.Event()
    over_later = threading.Timer(0.3, over.set)
    over_later.start()
    try:
        found = polled(loop, Marker(path, over))
    finally:
        over_later.join()
    assert found == ""


def polled(loop: Callable[[Marker], None], marker: Marker) -> str:
    def guarded() -> None:
        try:
            loop(marker)
        except AssertionError:
            return  # the program's own doing, once it is over

    thread = threading.Thread(target=guarded)
    thread.start()
    found = ""
    while not marker.over.is_set() and not found:
        found = polled_file(sys._current_frames().get(thread.ident or 0))
        time.sleep(0.005)
    marker.over.set()
    thread.join()
    return found


@pytest.mark.parametrize(
    ("value", "told"), [("/data/none", "/data/none"), (7, ""), (None, ""), (b"/data", ""), ("", "")]
)
def test_only_a_path_is_told(value: Any, told: str) -> None:
    def looks(path: Any) -> FrameType:
        while True:
            if type(path) is str and os.path.exists(path):  # noqa: PTH110
                continue
            return sys._getframe()

    assert polled_file(looks(value)) == told


def test_without_a_frame_nothing_is_told() -> None:
    assert polled_file(None) == polled_file(sys._getframe()) == ""


def test_the_word_is_taken_back(tmp_path: Path) -> None:
    told = iter(["", "/data/lock", "/data/lock", ""])
    own = Polled(tmp_path / "polled-7.txt", lambda frame: next(told))
    for files in (0, 1, 1, 0):
        own.look()
        assert [file.read_text() for file in tmp_path.iterdir()] == ["/data/lock"] * files
