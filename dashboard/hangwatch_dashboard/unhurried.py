"""Long looks that let others go first."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SLICE = 256  # items, about a quarter of a millisecond
PAUSE_S = 0.001


def unhurried(items: Sequence[T]) -> Iterator[T]:
    """The items, with a pause after every slice where this is not the main thread.

    The event loop lets go of the interpreter with every read, and each time waits for it in vain as long as another
    thread computes: a look at 10,000 ranks without pauses holds up answers for a tenth of a second and more.
    """
    if len(items) <= SLICE or threading.current_thread() is threading.main_thread():
        yield from items
        return
    for first in range(0, len(items), SLICE):
        yield from items[first : first + SLICE]
        time.sleep(PAUSE_S)
