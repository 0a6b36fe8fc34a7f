"""A device without a device: a compute stream, and a stream for each communicator, which run their works in order.

No Python thread belongs to it. A stream goes on in the thread that completed what it waited for: one of gloo's, one of
the compiled library, or the one that enqueued. So a sampler sees the threads that it would see with CUDA.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import deque
from collections.abc import Callable

from .library import load

FOREVER = -1.0  # seconds that a kernel takes which never ends

lock = threading.RLock()
_Ended = ctypes.CFUNCTYPE(None, ctypes.c_long)


class Stage:
    """One entry of the compute stream: a kernel, or the wait for a collective. `begin` is called at its turn."""

    def __init__(self, begin: Callable[[Stage], None] = lambda stage: None) -> None:
        self.begin = begin
        self.begun = False
        self.done = False


class Device:
    """The compute stream. `followers` are called whenever it has gone on."""

    def __init__(self) -> None:
        self.library = load()
        self._counted = ctypes.c_long.in_dll(self.library, "standin_enqueued")
        self._passed = ctypes.c_long.in_dll(self.library, "standin_completed")
        self._queue: deque[Stage] = deque()
        self._running: dict[int, Stage] = {}
        self._numbers = itertools.count(1)
        self._ended = _Ended(self._kernel_ended)  # kept: the library calls it
        self.followers: list[Callable[[], None]] = []
        self.captured: list[Callable[[], None]] | None = None  # while a graph is captured
        self.library.standin_launch.argtypes = [ctypes.c_double, _Ended, ctypes.c_long]

    @property
    def enqueued(self) -> int:
        return int(self._counted.value)

    @property
    def completed(self) -> int:
        return int(self._passed.value)

    def enqueue(self, stage: Stage) -> None:
        with lock:
            self._queue.append(stage)
            self._counted.value += 1
            self.advance()

    def kernel(self, seconds: float) -> None:
        """Queue a kernel that takes that long."""
        if self.captured is not None:
            self.captured.append(lambda: self.kernel(seconds))
            return
        self.enqueue(Stage(lambda stage: self._launch(stage, seconds)))

    def advance(self) -> None:
        """Go on as far as possible."""
        with lock:
            moved = False
            while self._queue:
                stage = self._queue[0]
                if not stage.begun:
                    stage.begun = True
                    stage.begin(stage)
                if not stage.done:
                    break
                self._queue.popleft()
                self._passed.value += 1
                moved = True
            if moved:
                for follow in self.followers:
                    follow()

    def _launch(self, stage: Stage, seconds: float) -> None:
        if seconds == FOREVER:
            return
        number = next(self._numbers)
        self._running[number] = stage
        self.library.standin_launch(seconds, self._ended, number)

    def _kernel_ended(self, number: int) -> None:
        with lock:
            self._running.pop(number).done = True
            self.advance()
