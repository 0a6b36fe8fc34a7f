"""Work that may never come back (a dead file server, a resolver, a driver): in a thread of its own, with a deadline."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DeadlineError(TimeoutError):
    """The work has not come back. A TimeoutError of another kind is one that the work itself has raised."""


def within(seconds: float, work: Callable[[], T], name: str, *, finally_do: Callable[[], object] = lambda: None) -> T:
    """The result of `work`. Raises what it raises, and DeadlineError where it has not ended after `seconds`.

    Args:
        name: of the daemon thread, which is left behind after a timeout.
        finally_do: called in that thread whenever it comes back, be it much later.
    """
    done: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

    def attempt() -> None:
        try:
            outcome: tuple[T | None, Exception | None] = (work(), None)
        except Exception as error:
            outcome = (None, error)
        finally_do()
        done.put(outcome)

    threading.Thread(target=attempt, name=name, daemon=True).start()
    try:
        result, error = done.get(timeout=seconds)
    except queue.Empty:
        raise DeadlineError(110, f"does not answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]
