"""What the watchdog gathers when nothing moves: one file a source of evidence, `capture()` for all of them.

The rooms below are the sources: other processes' stacks, the kernel, the ranks themselves, the user's source files.
Imported when first used: a command that needs one source does not pay for the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hangwatch_agent.capture.evidence import capture
    from hangwatch_agent.capture.native_frames import with_native_stacks
    from hangwatch_agent.capture.options import CaptureOptions, CaptureResult, Target

__all__ = ["CaptureOptions", "CaptureResult", "Target", "capture", "with_native_stacks"]

_HOMES = {
    "CaptureOptions": "options",
    "CaptureResult": "options",
    "Target": "options",
    "capture": "evidence",
    "with_native_stacks": "native_frames",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
