"""The moment each rank's process ends, to the millisecond: who died first is half of the verdict of a failed job.

Polling cannot tell: within one poll a launcher kills all the others. A pid descriptor becomes readable when its process
ends, so one thread waits on all of them.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable


class DeathWatch:
    """Waits for processes to end in a daemon thread. `ended` maps pid to the time (since 1970) of its end."""

    def __init__(self, wake: Callable[[], None], clock: Callable[[], float] = time.time) -> None:
        self.ended: dict[int, float] = {}
        self._wake = wake
        self._clock = clock
        self._descriptors: dict[int, int] = {}  # descriptor -> pid
        self._watched: set[int] = set()
        self._poll = select.epoll()
        threading.Thread(target=self._wait, name="hangwatch-deaths", daemon=True).start()

    def watch(self, pid: int) -> None:
        """Watch process `pid` too. Does nothing for one that is watched already."""
        if pid in self._watched:
            return
        self._watched.add(pid)
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self.ended[pid] = self._clock()
            return
        except OSError:
            return  # an old kernel, or no descriptors left: polling still sees the end, only later
        self._descriptors[descriptor] = pid
        self._poll.register(descriptor, select.EPOLLIN)

    def _wait(self) -> None:
        while True:
            try:
                ready = self._poll.poll()
            except (OSError, ValueError):
                return
            for descriptor, _ in ready:
                self.ended[self._descriptors.pop(descriptor)] = self._clock()
                self._poll.unregister(descriptor)
                os.close(descriptor)
            self._wake()
