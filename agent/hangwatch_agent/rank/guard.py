"""The one guard under which every hook body runs: what fails in a hook is noted, and never reaches the training.

One thing is not ours to keep: what a signal handler of the program's raises while a hook runs (an alarm that ends a
step). It is raised on, as from any other line.

A body is guarded by `try: ... except Exception as error: guard.swallow(error)`, which costs nothing while nothing fails
(a context manager would cost more than most bodies). Tests set HANGWATCH_RAISE=1 or call `raise_swallowed(True)` to
see what was swallowed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

_raising = os.environ.get("HANGWATCH_RAISE", "") not in ("", "0")


def raise_swallowed(on: bool) -> None:
    """Whether guards raise what they are given, from now on. For tests."""
    global _raising
    _raising = on


class Guard:
    """Counts what the hooks of this process failed at. `note` takes the message, and may fail itself."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.swallowed = 0
        self._note = note

    def swallow(self, error: Exception) -> None:
        """Note `error` and go on. The message names its type and the line of ours that failed.

        Raises `error` where a signal handler of the program's has raised it.
        """
        if _is_handlers(error):
            raise error
        self.swallowed += 1
        with contextlib.suppress(Exception):  # the board may be full or gone, and the training must not notice
            self._note(_described(error))
        if _raising:
            raise error


def _is_handlers(error: Exception) -> bool:
    """Whether it comes out of one of the signal handlers that the program has set."""
    with contextlib.suppress(Exception):
        handlers = set(_handlers())
        traceback = error.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code in handlers:
                return True
            traceback = traceback.tb_next
    return False


def _handlers() -> Iterator[CodeType]:
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        if not callable(handler):
            continue
        while isinstance(handler, functools.partial):
            handler = handler.func
        if not hasattr(handler, "__code__"):
            handler = type(handler).__call__  # an object of a class with that method
        if hasattr(handler, "__code__"):
            yield handler.__code__


def _described(error: Exception) -> str:
    place, traceback = "", error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        place = f" ({os.path.basename(code.co_filename)}:{traceback.tb_lineno}, {code.co_name})"  # noqa: PTH119
        traceback = traceback.tb_next
    return f"{type(error).__name__}: {error}"[:200] + place
