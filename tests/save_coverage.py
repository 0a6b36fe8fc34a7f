"""A coverage plugin: whenever a process stands still it saves what was measured so far.

A hung rank is killed in the end and would report nothing. coverage's own `sigterm = true` is no way out: its
handler is Python, never runs while the rank waits in a C call, and so keeps alive what a plain SIGTERM ends.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from coverage import Coverage

SAMPLE_S = 1.0


def coverage_init(registry: Any, options: dict[str, str]) -> None:
    """Called by coverage in each measured process, forked ones included."""
    threading.Thread(target=_save_when_still, name="save-coverage", daemon=True).start()


def _save_when_still() -> None:
    main = threading.main_thread().ident
    before, saved = None, False
    while True:
        time.sleep(SAMPLE_S)
        now = _place(main)
        if now != before:
            saved = False
        elif not saved and (measured := Coverage.current()) is not None:
            measured.save()
            saved = True
        before = now


def _place(thread: int | None) -> tuple[int, int] | None:
    frame = sys._current_frames().get(thread or 0)
    return (id(frame), frame.f_lasti) if frame else None
