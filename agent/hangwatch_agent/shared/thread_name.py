"""The name of the thread that asks, without leaving a trace of the question."""

from __future__ import annotations

import threading
from pathlib import Path

COMM = Path("/proc/thread-self/comm")


def thread_name() -> str:
    """What Python calls this thread; of one that Python has not started, what the system calls it.

    Not by `threading.current_thread()`, which makes a thread object where there is none, such as in autograd's threads:
    a program that joins all threads would then find one more, and an error.
    """
    ident = threading.get_ident()
    known = next((each for each in threading.enumerate() if each.ident == ident), None)
    if known is not None and type(known).__name__ != "_DummyThread":
        return known.name
    try:
        return COMM.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # an old kernel, or another system
        return known.name if known is not None else ""
