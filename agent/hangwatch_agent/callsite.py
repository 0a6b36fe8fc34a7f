"""Who called: the user's line, found on the stack in a microsecond."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType
from typing import Any

LIBRARY, PACKAGE, USER = range(3)
Place = tuple[str, int, str]  # file, line, function

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120 - pathlib is slow to import
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


def described(frame: FrameType) -> Place:
    return frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name


def frames_of(traceback: Any, most: int = 60) -> list[Place]:
    """The frames of a traceback, innermost first, hangwatch's own left out."""
    found = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_OURS):
            found.append((code.co_filename, traceback.tb_lineno or 0, code.co_name))
        traceback = traceback.tb_next
    return found[::-1][:most]
