"""What the watchdog gathers when nothing moves: one file a source of evidence, `capture()` for all of them.

Imported when first used: parts of it (`redact`) are wanted in ranks too, which must not pay for the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hangwatch_agent.capture.evidence import capture
    from hangwatch_agent.capture.means import CaptureResult, Means, Target
    from hangwatch_agent.capture.native import with_native_stacks

__all__ = ["CaptureResult", "Means", "Target", "capture", "with_native_stacks"]

_HOMES = {
    "CaptureResult": "means",
    "Means": "means",
    "Target": "means",
    "capture": "evidence",
    "with_native_stacks": "native",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
