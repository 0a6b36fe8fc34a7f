from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hangwatch_agent.rank import guard
from hangwatch_agent.rank.guard import Guard


@pytest.fixture(autouse=True)
def swallowing() -> Iterator[None]:
    before = guard._raising
    guard.raise_swallowed(False)
    yield
    guard.raise_swallowed(before)


def test_what_a_hook_fails_at_is_noted_with_its_place() -> None:
    noted: list[str] = []
    watch = Guard(noted.append)
    try:
        raise KeyError("absent")
    except KeyError as error:
        watch.swallow(error)
    assert watch.swallowed == 1
    assert noted[0].startswith("KeyError: 'absent' (test_guard.py:")


def test_a_note_that_fails_is_swallowed_too() -> None:
    def note(text: str) -> None:
        raise OSError("the board is gone")

    watch = Guard(note)
    watch.swallow(ValueError("x"))
    assert watch.swallowed == 1


def test_tests_see_what_was_swallowed() -> None:
    guard.raise_swallowed(True)
    with pytest.raises(ValueError, match="x"):
        Guard(lambda text: None).swallow(ValueError("x"))


class AlarmError(Exception):
    """What a program's handler raises to leave a step that takes too long."""


class Handler:
    def ring(self, *_: object) -> None:
        raise AlarmError

    def __call__(self, *_: object) -> None:
        raise AlarmError


class Heir(Handler):
    """Its method is inherited."""


def ring(*_: object) -> None:
    raise AlarmError


@pytest.mark.parametrize("handler", [ring, Handler().ring, Handler(), Heir(), functools.partial(ring, 1)])
def test_what_a_signal_handler_of_the_program_raises_is_not_ours_to_keep(handler: Callable[..., Any]) -> None:
    noted: list[str] = []
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(AlarmError):
            hook(Guard(noted.append))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert noted == []


def test_an_error_that_no_handler_has_raised_is_kept_though_there_is_one() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    watch = Guard(lambda text: None)
    try:
        hook(watch, fails=True)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert watch.swallowed == 1


def hook(watch: Guard, *, fails: bool = False) -> None:
    """The body of a hook, in the midst of which a signal comes."""
    try:
        signal.raise_signal(signal.SIGUSR1)
        if fails:
            raise KeyError
    except Exception as error:
        watch.swallow(error)
