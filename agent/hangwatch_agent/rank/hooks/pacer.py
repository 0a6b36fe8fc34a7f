"""Which of several objects of one kind, models or optimizers, gives the rank its steps.

The first one does, and those that join it within its first turns take part in its steps: the discriminator beside the
generator. A program may be done with it: the next trial of a search, the next fold, a second stage train a new one. Its
successor is one that came later and is used twice in a row without it. Only the order of uses counts, which is the same
on all ranks, and not when memory is freed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

TOGETHER = 2  # uses of the one that gives the steps, within which others belong to its turns
IN_A_ROW = 2  # uses of a newcomer without it, by which that takes its place


class Pacer:
    """Asked at each use of an object: whether a step begins or ends with it."""

    def __init__(self) -> None:
        self._pacing: Callable[[], Any] = _nobody  # the one that gives the steps; no id, which another may have later
        self._uses = 0  # of it, until no other can belong to its turns
        self._partners: dict[int, Callable[[], Any]] = {}  # by id: to compare them would call code of the user's
        self._newcomer: Callable[[], Any] = _nobody
        self._in_a_row = 0

    def paces(self, used: Any) -> bool:
        """Count a use of `used`; True if the rank's steps go by it."""
        if self._pacing() is not used:
            return self._takes_over(used)
        self._uses += self._uses <= TOGETHER
        self._in_a_row = 0
        return True

    def _takes_over(self, used: Any) -> bool:
        if not self._uses:
            self._pacing, self._uses = weakref.ref(used), 1
            return True
        if self._uses <= TOGETHER:
            self._partners[id(used)] = weakref.ref(used)
        if self._partners.get(id(used), _nobody)() is used:
            return False
        if not self._in_a_row or self._newcomer() is not used:
            self._newcomer, self._in_a_row = weakref.ref(used), 0
        self._in_a_row += 1
        if self._in_a_row < IN_A_ROW:
            return False
        self._pacing, self._uses, self._in_a_row = self._newcomer, 1, 0
        self._partners.clear()
        return True


def _nobody() -> None:
    return None
