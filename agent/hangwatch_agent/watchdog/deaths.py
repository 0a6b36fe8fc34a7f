"""The moment each rank's process ends, to the millisecond: which died first is half of the verdict of a failed job.

Polling does not show it: within one poll a launcher kills all the others. A pid descriptor becomes readable when its
process ends, so one thread waits on all of them.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import threading
from collections.abc import Callable
from dataclasses import replace

from hangwatch.model import ProcessFacts
from hangwatch_agent.shared import procfs, steady_clock

Key = tuple[int, int]  # pid and start in clock ticks since boot (0: not known): pids are used again


class DeathWatch:
    """Waits for processes to end in a daemon thread.

    `ended` maps a process (pid and start) to the time (since 1970) of its end, `codes` to its exit code (negative for
    a signal) where the kernel shows it to other processes than the parent.
    """

    def __init__(self, wake: Callable[[], None], clock: Callable[[], float] = steady_clock.time) -> None:
        self.ended: dict[Key, float] = {}
        self.codes: dict[Key, int] = {}
        self._wake = wake
        self._clock = clock
        self._descriptors: dict[int, Key] = {}  # by pid descriptor
        self._watched: set[Key] = set()
        self._poll = select.epoll()
        threading.Thread(target=self._wait, name="hangwatch-deaths", daemon=True).start()

    def watch(self, pid: int, ticks: int = 0) -> None:
        """Watch the process `pid` that started `ticks` after boot too. Does nothing for one that is watched already."""
        key = (pid, ticks)
        if key in self._watched:
            return
        self._watched.add(key)
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self.ended[key] = self._clock()
            return
        except (OSError, OverflowError):
            return  # an old kernel, or no descriptors left: polling still sees the end, only later
        if _is_another(pid, ticks):  # asked after the descriptor was opened: from here on it cannot change
            os.close(descriptor)
            self.ended[key] = self._clock()
            return
        self._descriptors[descriptor] = key
        self._poll.register(descriptor, select.EPOLLIN)

    def with_exit_code(self, process: ProcessFacts | None, pid: int, ticks: int) -> ProcessFacts | None:
        """The facts of a process that has ended, with its exit code where they lack it and that was seen."""
        if process is None or process.exit_code is not None or process.state not in ("X", "Z"):
            return process
        return replace(process, exit_code=self.codes.get((pid, ticks)))

    def _wait(self) -> None:
        while True:
            try:
                ready = self._poll.poll()
            except (OSError, ValueError):
                return
            for descriptor, _ in ready:
                key = self._descriptors.pop(descriptor)
                self.ended[key] = self._clock()
                code = exit_code(key[0], descriptor)
                if code is not None:
                    self.codes[key] = code
                self._poll.unregister(descriptor)
                os.close(descriptor)
            self._wake()


def _is_another(pid: int, ticks: int) -> bool:
    """Whether the process `pid` is known to have started at another time than `ticks`."""
    stat = procfs.stat_of(pid)
    return bool(ticks) and stat is not None and stat.ticks != ticks


PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, struct pidfd_info), with its first 64 bytes; Linux 6.13
PIDFD_INFO_EXIT = 1 << 3  # Linux 6.15
EXIT_CODE_AT = 60


def exit_code(pid: int, descriptor: int) -> int | None:
    """The exit code of a process that has just ended, by its pid descriptor; None where it is not known.

    A zombie's stands in /proc for as long as its parent has not waited for it; newer kernels keep it with the
    descriptor. Source: include/uapi/linux/pidfd.h.
    """
    status = _kept_status(descriptor)
    if status is None:
        stat = procfs.stat_of(pid)
        return stat.exit_code if stat is not None and stat.state in "ZX" else None
    return procfs.exit_code_of(status)


def _kept_status(descriptor: int) -> int | None:
    info = bytearray(struct.pack("=Q", PIDFD_INFO_EXIT).ljust(64, b"\0"))
    try:
        fcntl.ioctl(descriptor, PIDFD_GET_INFO, info)
    except OSError:
        return None
    (mask,) = struct.unpack_from("=Q", info)
    (status,) = struct.unpack_from("=i", info, EXIT_CODE_AT)
    return int(status) if mask & PIDFD_INFO_EXIT else None
