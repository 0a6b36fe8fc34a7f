"""The name of the thread that asks, without leaving a trace of the question."""

from __future__ import annotations

import threading
from pathlib import Path

COMM = Path("/proc/thread-self/comm")
AUTOGRAD = "pt_autograd"  # the threads of autograd's engine, by a number for each device


def thread_name() -> str:
    """What Python calls this thread; of autograd's what the system calls it, which tells whose it is.

    Not by `threading.current_thread()`, which makes a thread object where there is none, such as in autograd's threads:
    a program that joins all threads would then find one more, and an error.
    """
    known = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]  # enumerate() takes a lock
    if known is not None and type(known).__name__ != "_DummyThread":
        return str(known.name)
    said = in_the_system()
    if said.startswith(AUTOGRAD):
        return said
    return str(known.name) if known is not None else f"{said}-{threading.get_native_id()}"


def in_the_system() -> str:
    """What the system calls this thread; "" where it does not say."""
    try:
        return COMM.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # an old kernel, or another system
        return ""
