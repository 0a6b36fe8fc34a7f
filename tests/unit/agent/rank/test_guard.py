from __future__ import annotations

from collections.abc import Iterator

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
