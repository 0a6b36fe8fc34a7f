"""The stacks of a rank that has ended, or that an error takes out of its main program, are its last ones."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.facts.case import Case
from hangwatch.model import ExceptionFacts, Frame, Phase, ThreadStack
from hangwatch_agent.capture.assemble import _last
from tests.unit.job import IN_BACKWARD, NOW, SCRIPT, main_thread, process, rank, snapshot

ERROR = ExceptionFacts("RuntimeError", "Connection closed by peer", IN_BACKWARD, at=NOW - 5)
LEFT = ThreadStack(1, "MainThread", (), main=True)
TICKER = ThreadStack(2, "hangwatch-ticker", (Frame(SCRIPT, 1, "wait"),))


def test_an_interpreter_that_is_ending_has_no_frames_and_the_error_tells_the_last() -> None:
    reading = rank(0, phase=Phase.FINALIZING, exception=ERROR).reading
    assert reading is not None
    main, ticker = _last((LEFT, TICKER), process(100), reading, "")
    assert (main.frames, main.source, ticker) == (IN_BACKWARD, "error", TICKER)
    (alone,) = _last((LEFT,), process(100), replace(reading, exception=None), "")
    assert alone is LEFT


def test_a_stack_that_was_seen_is_kept() -> None:
    reading = rank(0, exception=ERROR).reading
    assert reading is not None
    seen = (main_thread((Frame(SCRIPT, 3, "report"),)),)
    assert _last(seen, process(100), reading, "") == seen


def test_a_process_that_is_gone_shows_its_trace_or_its_error() -> None:
    reading = rank(0, exception=ERROR).reading
    assert reading is not None
    assert [stack.source for stack in _last((), process(100, "X"), reading, "")] == ["error"]
    assert _last((), process(100), replace(reading, exception=None), "") == ()


def test_a_rank_that_its_error_took_out_waits_for_no_rank() -> None:
    entry = rank(0, IN_BACKWARD, issued=4, completed=3, exception=ERROR)
    assert 0 in Case(snapshot(entry, rank(1, issued=3, completed=3))).blocked
    ending = replace(entry, stacks=tuple(replace(stack, source="error") for stack in entry.stacks))
    assert 0 not in Case(snapshot(ending, rank(1, issued=3, completed=3))).blocked
