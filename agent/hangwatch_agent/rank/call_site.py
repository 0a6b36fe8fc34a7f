"""The user's line that called, found on the stack in a microsecond."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

LIBRARY, PACKAGE, USER = range(3)
Place = tuple[str, int, str]  # file, line, function
CallPath = tuple[int, ...]  # of each frame: its code's identity, and the instruction that it is at
CO_GENERATOR = 0x20  # of a code's flags; inspect, which names it, is slow to import
MOST_FRAMES = 100  # of a call path

# The folder of the whole package. Not by pathlib, which is slow to import.
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120
_STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_BETWEEN = frozenset({"wrapper", "_fn", "inner", "decorate_context"})  # decorators say nothing of what was called


class CallSites:
    """Tells the user's frames from those of torch, hangwatch, the standard library and installed packages.

    A frame of an installed package (tqdm, a trainer) counts as the user's only where no other is on the stack.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, int] = {}
        self._torch = ""

    def kind(self, file: str) -> int:
        """LIBRARY for torch, hangwatch and the standard library, PACKAGE for other installed code, else USER."""
        kind = self._kinds.get(file)
        if kind is None:
            kind = self._kinds[file] = self._judge(file)
        return kind

    def _judge(self, file: str) -> int:
        if not self._torch and "torch" in sys.modules:
            self._torch = os.path.dirname(getattr(sys.modules["torch"], "__file__", None) or "//") + os.sep  # noqa: PTH120
        if file.startswith((_OURS, self._torch or _OURS)) or (file.startswith("<") and "frozen" in file):
            return LIBRARY
        if "site-packages" in file or "dist-packages" in file:
            return PACKAGE
        return LIBRARY if file.startswith(_STANDARD) else USER

    def user_frame(self, frame: FrameType | None) -> tuple[FrameType | None, FrameType | None]:
        """The user's innermost frame from `frame` outwards, and torch's function that it called (None for neither)."""
        package: tuple[FrameType, FrameType | None] | None = None
        through = None
        while frame is not None:
            code = frame.f_code
            kind = self.kind(code.co_filename)
            if kind == USER:
                return frame, through
            if kind == PACKAGE:
                package = package or (frame, through)
            elif package is None and code.co_name not in _BETWEEN and code.co_filename.startswith(self._torch or "//"):
                through = frame
            frame = frame.f_back
        return package or (None, through)

    def where(self, frame: FrameType | None) -> Place | None:
        """File, line and function of the user's innermost frame."""
        found, _ = self.user_frame(frame)
        return None if found is None else described(found)

    def consumer(self, frame: FrameType | None) -> Place | None:
        """The line that iterates: where the user's innermost frame is a generator's, that of the loop over it.

        A progress bar or a prefetcher passes items on, and may do so from another line on each rank.
        """
        first = found = self.user_frame(frame)[0]
        while found is not None and found.f_code.co_flags & CO_GENERATOR:
            found = self.user_frame(found.f_back)[0]
        chosen = found or first
        return None if chosen is None else described(chosen)


def described(frame: FrameType) -> Place:
    return frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name


def path_of(frame: FrameType | None) -> CallPath:
    """A key that is the same wherever the same instructions lead from the program's start to `frame`.

    About 0.1 microseconds for each frame: neither lines nor names are looked up. It is good for as long as the codes of
    the path live (`codes_of`): no other code can have their identity.
    """
    key: list[int] = []
    while frame is not None and len(key) < 2 * MOST_FRAMES:
        key.append(id(frame.f_code))
        key.append(frame.f_lasti)
        frame = frame.f_back
    return tuple(key)


def codes_of(frame: FrameType | None) -> tuple[CodeType, ...]:
    """The codes that `path_of` goes by."""
    codes: list[CodeType] = []
    while frame is not None and len(codes) < MOST_FRAMES:
        codes.append(frame.f_code)
        frame = frame.f_back
    return tuple(codes)


def described_path(frame: FrameType | None) -> list[Place]:
    """The frames that `path_of` goes by, innermost first, without hangwatch's own and those that start a program."""
    found: list[Place] = []
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if not file.startswith(_OURS) and "<frozen" not in file:
            found.append(described(frame))
        frame = frame.f_back
    return found


def frames_of(traceback: Any, most: int = 60, *, callers: bool = False) -> list[Place]:
    """The frames of a traceback, innermost first, hangwatch's own left out.

    With `callers`, of an error on its way, those that it has not come to yet follow.
    """
    found = list(_callers(traceback.tb_frame.f_back))[::-1] if callers and traceback is not None else []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_OURS):
            found.append((code.co_filename, traceback.tb_lineno or 0, code.co_name))
        traceback = traceback.tb_next
    return found[::-1][:most]


def _callers(frame: FrameType | None) -> Iterator[Place]:
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            yield code.co_filename, frame.f_lineno or 0, code.co_name
        frame = frame.f_back
