"""Hints from the source at a frame: loops, blocks, signal handlers."""

from __future__ import annotations

import textwrap

import pytest

from hangwatch.model import Frame
from hangwatch.source.hints import annotated
from tests.unit.stacks.thread_stacks import MODULE, USER, stack

SOURCE = textwrap.dedent(
    """\
    import signal
    def handler(number, frame):
        with lock:
            pass
    signal.signal(signal.SIGUSR1, handler)
    def main():
        for epoch in range(3):
            while True:
                step()
            validate()
        try:
            risky()
        except ValueError:
            dist.barrier()
        finally:
            dist.barrier()
        return [step() for _ in range(2)]
    """
)


@pytest.mark.parametrize(
    ("line", "block", "in_loop"),
    [(9, "", True), (10, "", True), (12, "", False), (14, "except", False), (16, "finally", False), (3, "", False)],
)
def test_the_source_tells_loops_and_blocks(line: int, block: str, in_loop: bool) -> None:
    told = annotated(stack(Frame("/home/ann/train.py", line, "main")), lambda file: SOURCE)
    assert (told.block, told.in_loop) == (block, in_loop)


def test_the_loop_of_a_coroutine_that_waits_is_not_known() -> None:
    event_loop = Frame("/usr/lib/python3.12/asyncio/base_events.py", 1910, "_run_once")
    told = annotated(stack(event_loop, Frame("/home/ann/train.py", 12, "main")), lambda file: SOURCE)
    assert told.in_loop is None
    told = annotated(stack(Frame("/home/ann/train.py", 9, "step"), event_loop), lambda file: SOURCE)
    assert told.in_loop


def test_the_source_tells_a_signal_handler_from_a_call() -> None:
    inside = stack(Frame("/home/ann/train.py", 3, "handler"), Frame("/home/ann/train.py", 9, "main"))
    assert annotated(inside, lambda file: SOURCE).handler == "handler"
    assert annotated(stack(USER, MODULE), lambda file: SOURCE).handler == ""


@pytest.mark.parametrize("source", [None, "def broken(", "\0"])
def test_a_source_that_cannot_be_read_tells_nothing(source: str | None) -> None:
    assert annotated(stack("user", MODULE), lambda file: source) == stack("user", MODULE)


DECODES = textwrap.dedent(
    """\
    def decode(start):
        while not done(start):
            dist.all_reduce(start)
    def main():
        for epoch in range(3):
            texts = [decode(start) for start in starts]
            dist.barrier()
    """
)


@pytest.mark.parametrize("function", ["<listcomp>", "<genexpr>", "main"])
def test_a_comprehension_with_a_frame_of_its_own_is_a_part_of_its_function(function: str) -> None:
    """Up to Python 3.11 it is a frame: the loop around it stood there twice, and a rank at line 7 in another one."""
    inner = Frame("/home/ann/train.py", 3, "decode")
    own = (Frame("/home/ann/train.py", 6, function),) if function != "main" else ()
    told = annotated(stack(inner, *own, Frame("/home/ann/train.py", 6, "main")), lambda file: DECODES)
    assert told.loop is not None
    assert told.loop.outer == (Frame("/home/ann/train.py", 5, "main"),)
    alone = annotated(stack(Frame("/home/ann/train.py", 6, function)), lambda file: DECODES)
    assert alone.loop is not None
    assert alone.loop.where.line == 5
