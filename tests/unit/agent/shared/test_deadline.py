"""Work with a deadline: its result, its error, and what comes too late."""

from __future__ import annotations

import threading

import pytest

from hangwatch_agent.shared.deadline import DeadlineError, within


def test_the_result_comes_back() -> None:
    assert within(60.0, lambda: 7, "test") == 7


def test_an_error_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise KeyError("unforeseen")

    with pytest.raises(KeyError, match="unforeseen"):
        within(60.0, fail, "test")


def test_an_error_of_the_work_is_no_deadline() -> None:
    """A network file system has timeouts of its own."""

    def fail() -> None:
        raise TimeoutError(110, "of the file server")

    with pytest.raises(TimeoutError) as raised:
        within(60.0, fail, "test")
    assert not isinstance(raised.value, DeadlineError)


def test_work_that_does_not_come_back_is_left_behind() -> None:
    """WHEN it comes back after all THEN that is told, once."""
    release, returned = threading.Event(), threading.Event()
    with pytest.raises(DeadlineError, match=r"within 0\.05 s"):
        within(0.05, release.wait, "test", finally_do=returned.set)
    assert not returned.is_set()
    release.set()
    assert returned.wait(60.0)
