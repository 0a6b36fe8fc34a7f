"""Traces that a rank writes itself, by faulthandler: at a crash, and when the watchdog asks."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import os
import signal
from pathlib import Path
from typing import Any

from hangwatch_agent.rank.patch import Patches
from hangwatch_agent.shared.own_stacks import END, stacks_file

LARGEST = 256 << 10  # of what was written on request, before it begins anew


class FaultTraces:
    """faulthandler's traces beside the board: `crash-PID.txt`, and `stacks-PID.txt` when the watchdog asks.

    faulthandler stays as the program has set it up, and a signal that has a handler is left alone. Where hangwatch has
    enabled it, `faulthandler.is_enabled()` still says False: many programs enable it only then. Empty files are removed
    at the end.

    A program may close every descriptor that it has not opened (a daemon does), and open files of its own, which get
    the same numbers. So descriptors are asked for what they are before they are used, and `look` asks now and then,
    for faulthandler writes to its one without asking.
    """

    def __init__(self, run_dir: Path) -> None:
        self._crash = run_dir / f"crash-{os.getpid()}.txt"
        self._stacks = stacks_file(run_dir, os.getpid())
        self._pid = os.getpid()
        self._signal = 0
        self._files: list[_File] = []
        self._on_request: _File | None = None
        self._enabled = False  # by us, and not by the program since
        self._patches = Patches()

    def install(self) -> None:
        """Raises OSError where the files cannot be made."""
        if not faulthandler.is_enabled():
            faulthandler.enable(self._file(self._crash).descriptor, all_threads=True)
            self._enabled = True
            self._hide()
            atexit.register(self.tidy)
        number = signal.SIGRTMAX - 3  # not one of those that runtimes and debuggers use
        if hasattr(faulthandler, "register") and signal.getsignal(number) == signal.SIG_DFL:
            self._on_request = file = self._file(self._stacks)
            os.write(file.descriptor, f"{int(number)}\n".encode())
            faulthandler.register(number, file.descriptor, all_threads=True, chain=False)
            self._signal = number

    def write(self) -> None:
        """Append the stacks of all threads to `stacks-PID.txt`; no thread moves meanwhile, as Python's lock is held."""
        if self._on_request is None or not self._on_request.is_ours():
            return
        descriptor = self._on_request.descriptor
        if os.fstat(descriptor).st_size > LARGEST:
            os.ftruncate(descriptor, len(f"{self._signal}\n"))
        faulthandler.dump_traceback(descriptor, all_threads=True)
        os.write(descriptor, END.encode())

    def look(self) -> None:
        """Take faulthandler off descriptors that are not ours any more. For the ticker."""
        if not all(file.is_ours() for file in self._files):
            self.forget()

    def _hide(self) -> None:
        """The program sees faulthandler as it would without us."""
        enable, disable, is_enabled = faulthandler.enable, faulthandler.disable, faulthandler.is_enabled

        @functools.wraps(enable)
        def enabling(*args: Any, **kwargs: Any) -> None:
            enable(*args, **kwargs)
            self._enabled = False

        @functools.wraps(disable)
        def disabling() -> bool:
            return False if self._enabled else bool(disable())

        @functools.wraps(is_enabled)
        def asking() -> bool:
            return is_enabled() and not self._enabled

        for name, replacement in (("enable", enabling), ("disable", disabling), ("is_enabled", asking)):
            self._patches.put(faulthandler, name, replacement)

    def remove(self) -> None:
        self.forget()
        atexit.unregister(self.tidy)
        self._stacks.unlink(missing_ok=True)
        self.tidy()

    def tidy(self) -> None:
        """Nothing crashed: leave no empty file."""
        with contextlib.suppress(OSError):
            if os.getpid() == self._pid and self._crash.stat().st_size == 0:
                self._crash.unlink()

    def forget(self) -> None:
        """Leave faulthandler as it was, and our files closed but in place: in a forked child they are its parent's."""
        if self._signal:
            faulthandler.unregister(self._signal)
            self._signal = 0
        self._patches.remove()
        if self._enabled:
            faulthandler.disable()
            self._enabled = False
        for file in self._files:
            file.close()
        self._files, self._on_request = [], None

    def _file(self, path: Path) -> _File:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._files.append(file := _File(os.open(path, flags, 0o600)))
        return file


class _File:
    """A file of ours by its descriptor, which the program may close behind our back."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._is = self._identity()

    def is_ours(self) -> bool:
        try:
            return self._identity() == self._is
        except OSError:
            return False

    def close(self) -> None:
        if self.is_ours():
            with contextlib.suppress(OSError):
                os.close(self.descriptor)

    def _identity(self) -> tuple[int, int]:
        found = os.fstat(self.descriptor)
        return found.st_dev, found.st_ino
