"""Call paths as lines of a board's table, so that a call names its path by one number."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.rank.call_site import CallPath, Place, codes_of, described_path, path_of
from hangwatch_agent.shared.thread_name import AUTOGRAD, in_the_system

MOST_SITES = 4096


class CallPaths:
    """The whole path tells call sites apart: one helper is called from a step and from under `if rank == 0`.

    Where threads of autograd's own run Python code, such as FSDP's hooks, its path begins in torch. It is told from the
    program's start all the same, by way of the one path to backward, as long as there is only one.
    """

    def __init__(self, board: BoardWriter) -> None:
        self._board = board
        self.forget()

    def forget(self) -> None:
        """This process has a new board, whose table is empty."""
        self._known: dict[CallPath, tuple[int, tuple[CodeType, ...]]] = {}
        self._to_backward: list[int] = []

    def to_backward(self, caller: FrameType, *inner: Place) -> int:
        """The number of the one path to backward (see `number`)."""
        frames = self._interned(caller, *inner)
        self._to_backward = frames if -1 not in frames else []  # the table is full, or another thread was at it
        return self.number(caller, *inner)

    def several_to_backward(self) -> None:
        """From now on it is not known by which path a call in autograd's threads was reached."""
        if self._to_backward:
            self.forget()

    def number(self, caller: FrameType | None, *inner: Place) -> int:
        """The number of the line that says by which path `caller` was reached, from it outwards; -1 where none is free.

        `inner` are frames that it is going to call; they are the same whenever the path is.
        """
        key = path_of(caller)
        known = self._known.get(key)
        if known is not None:
            return known[0]
        board, frames = self._board, self._interned(caller, *inner)
        if self._to_backward and in_the_system().startswith(AUTOGRAD) and _begins_in_torch(caller):
            frames += self._to_backward
        number = board.intern(frames) if -1 not in frames else -1
        if number >= 0 or board.table_full:
            if len(self._known) >= MOST_SITES:
                self._known.clear()  # a program that makes code without end
            self._known[key] = number, codes_of(caller)
        return number

    def _interned(self, caller: FrameType | None, *inner: Place) -> list[int]:
        return [self._board.intern(place) for place in (*inner, *described_path(caller))]


def _begins_in_torch(frame: FrameType | None) -> bool:
    """C++ code has called the outermost function, and that is torch's: a program's own begins in its file."""
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    torch: str = getattr(sys.modules.get("torch"), "__file__", None) or ""
    return frame is not None and torch != "" and frame.f_code.co_filename.startswith(os.path.dirname(torch) + os.sep)  # noqa: PTH120
