"""The lock file that the main thread polls in torch's file baton, or in the filelock package.

The baton has its path in an object, which no tracer shows; that of filelock is a variable, for machines without tracer.
"""

from __future__ import annotations

import os
from types import FrameType
from typing import Any

BATON = os.path.join("torch", "utils", "file_baton.py")  # noqa: PTH118
FILELOCK = f"{os.sep}filelock{os.sep}"
_NAMED = "lock_filename"  # the variable of the function that tries again and again


def polled_path(frame: FrameType | None) -> str:
    """The path of the lock file that a thread waits for in `FileBaton.wait` or in filelock; "" where it does not."""
    while frame is not None:
        code, path = frame.f_code, None
        if code.co_name == "wait" and code.co_filename.endswith(BATON):
            baton: Any = frame.f_locals.get("self")
            path = getattr(baton, "lock_file_path", "")
        elif _NAMED in code.co_varnames and FILELOCK in code.co_filename:
            path = frame.f_locals.get(_NAMED)
        if path is not None:
            return os.path.abspath(path) if isinstance(path, str) and path else ""  # noqa: PTH100
        frame = frame.f_back
    return ""
