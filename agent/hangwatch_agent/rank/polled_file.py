"""The file for which a loop looks again and again, as in `while not path.exists(): time.sleep(1)`.

Its path is in a variable, which no stack shows. That one is read, and only where the line of the loop names it in the
call that looks: none of the program's code is run for it, and no other variable is looked at.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath
from types import FrameType
from typing import Any

from hangwatch_agent.rank.hooks.lengths import own

_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_LOOKS = re.compile(rf"\b(?:exists|lexists|isfile)\(\s*({_NAME})\s*\)|({_NAME})\.(?:exists|is_file)\(\s*\)")
_WHILE = re.compile(r"\s*while\b")
_ABOVE, _BELOW = 6, 6  # lines of the loop around the one where the thread stands
_LARGEST = 1 << 20  # bytes of a source that is read
_STAT = (
    "genericpath.py",
    "<frozen genericpath>",
    "pathlib.py",
    f"pathlib{os.sep}_local.py",
    f"pathlib{os.sep}__init__.py",
)


def polled_file(frame: FrameType | None) -> str:
    """The absolute path that the loop of this thread's innermost function asks for; "" where it asks for none."""
    while frame is not None and frame.f_code.co_filename.endswith(_STAT):
        frame = frame.f_back
    if frame is None or not (name := _asked(frame.f_code.co_filename, frame.f_lineno)):
        return ""
    value = _value(frame, name)
    if isinstance(value, PurePath) and type(value).__module__.partition(".")[0] == "pathlib":
        value = str(value)
    return os.path.abspath(value) if type(value) is str and value else ""  # noqa: PTH100


def _asked(file: str, line: int) -> str:
    """The name in the call that looks, of the loop around that line: in its condition, or in a line that follows."""
    lines = _lines(file)
    if not 0 < line <= len(lines):
        return ""
    here = _indent(lines[line - 1])
    for number in range(line, max(line - _ABOVE, 1) - 1, -1):
        text = lines[number - 1]
        if _WHILE.match(text) and (number == line or _indent(text) < here):
            inside = (each for each in lines[number : line + _BELOW] if _indent(each) > _indent(text))
            found = next(filter(None, map(_LOOKS.search, (text, *inside))), None)
            return (found[1] or found[2]) if found is not None else ""
    return ""


def _lines(file: str) -> list[str]:
    try:
        if os.stat(file).st_size > _LARGEST:  # noqa: PTH116
            return []
        return Path(file).read_text(errors="replace").splitlines()
    except (OSError, ValueError):
        return []


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _value(frame: FrameType, dotted: str) -> Any:
    first, *attributes = dotted.split(".")
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for name in attributes:
        value = own(value, name)
    return value
