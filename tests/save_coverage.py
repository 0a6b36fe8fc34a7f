"""A coverage plugin: whenever a process stands still it saves what was measured so far.

A hung rank is killed in the end and would report nothing. coverage's own `sigterm = true` is no way out: its
handler is Python, never runs while the rank waits in a C call, and so keeps alive what a plain SIGTERM ends.

And it leaves what ranks import of torch untraced: the trace would cost each of them a third of its start.
"""

from __future__ import annotations

import os
import sched
import signal
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from coverage import Coverage

from tests.tracing import untraced

SAMPLE_S = 1.0
UNTRACED = ("torch", "sympy")  # DDP imports torch's compiler, and that sympy

# Two saves at once crash the process in sqlite, and a fork amid one leaves locks in the child that nobody opens: the
# child's os._exit saves what its parent had measured as well.
_saving = threading.RLock()
os.register_at_fork(before=_saving.acquire, after_in_parent=_saving.release, after_in_child=_saving.release)


def coverage_init(registry: Any, options: dict[str, str]) -> None:
    """Called by coverage in each measured process, forked ones included."""
    _Saver().start()
    if _ImportedUntraced not in sys.meta_path:
        sys.meta_path.insert(0, _ImportedUntraced)


class _ImportedUntraced:
    """Finds modules of torch as Python itself would, and lets them run without the trace."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Part of the import system's protocol."""
        if sys.gettrace() is None or name.partition(".")[0] not in UNTRACED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = _untraced(spec.loader.exec_module)  # type: ignore[assignment]
        return spec


def _untraced(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def exec_module(module: ModuleType) -> None:
        with untraced():
            execute(module)

    return exec_module


class _Saver:
    """Looks at the main thread once a second, and saves when that has not moved between two looks.

    Between its looks the thread stands in the standard library alone: a thread that runs a user's own code could come
    to a collective, and hangwatch proves no hang of a rank that has one.
    """

    def __init__(self) -> None:
        self._scheduler = sched.scheduler()
        self._main = threading.main_thread().ident
        self._before: tuple[int, int] | None = None
        self._saved = False

    def start(self) -> None:
        self._scheduler.enter(SAMPLE_S, 0, self._look)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the program's threads
        threading.Thread(target=self._scheduler.run, name="save-coverage", daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _look(self) -> None:
        now = _place(self._main)
        if now != self._before:
            self._saved = False
        elif not self._saved and (measured := Coverage.current()) is not None:
            save = measured.save if isinstance(measured.save, _OneAtATime) else _OneAtATime(measured)
            save.save_a_living_one()
            self._saved = True
        self._before = now
        self._scheduler.enter(SAMPLE_S, 0, self._look)


class _OneAtATime:
    """A Coverage's `save`, for the end of the process too."""

    def __init__(self, measured: Coverage) -> None:
        self._measured = measured
        self._save = measured.save
        measured.save = self  # type: ignore[method-assign]

    def __call__(self) -> None:
        with _saving:
            self._save()

    def save_a_living_one(self) -> None:
        """Not one that has stopped: the end of the process saves that, and the interpreter may go meanwhile."""
        with _saving:
            if Coverage.current() is self._measured:
                self._save()


def _place(thread: int | None) -> tuple[int, int] | None:
    frame = sys._current_frames().get(thread or 0)
    return (id(frame), frame.f_lasti) if frame else None
