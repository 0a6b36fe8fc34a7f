"""Call paths as lines of a board's table, so that a call names its path by one number."""

from __future__ import annotations

from types import CodeType, FrameType

from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.rank.call_site import CallPath, Place, codes_of, described_path, path_of

MOST_SITES = 4096


class CallPaths:
    """The whole path tells call sites apart: one helper is called from a step and from under `if rank == 0`."""

    def __init__(self, board: BoardWriter) -> None:
        self._board = board
        self._known: dict[CallPath, tuple[int, tuple[CodeType, ...]]] = {}

    def forget(self) -> None:
        """This process has a new board, whose table is empty."""
        self._known = {}

    def number(self, caller: FrameType | None, *inner: Place) -> int:
        """The number of the line that says by which path `caller` was reached, from it outwards; -1 where none is free.

        `inner` are frames that it is going to call; they are the same whenever the path is.
        """
        key = path_of(caller)
        known = self._known.get(key)
        if known is not None:
            return known[0]
        board = self._board
        frames = [board.intern(place) for place in (*inner, *described_path(caller))]
        number = board.intern(frames) if -1 not in frames else -1
        if number >= 0 or board.table_full:
            if len(self._known) >= MOST_SITES:
                self._known.clear()  # a program that makes code without end
            self._known[key] = number, codes_of(caller)
        return number
