"""Seconds since 1970 that never jump: CLOCK_MONOTONIC plus a constant, the *anchor*, taken once per process.

Durations must survive a clock that is set (NTP, an operator, a virtual machine that was paused), and a time of day must
still be shown. So the watchdog takes its times from here, and the hooks of a rank write `time.monotonic_ns()`, which
costs less. CLOCK_MONOTONIC is one clock for all processes of a host; processes only differ in their anchors. A board
carries that of its writer, for later readers; a watchdog reads all boards with its own. Not CLOCK_BOOTTIME: after
the sleep of a host all ranks would seem stuck for as long as it slept.

Times in reports are therefore those of the system clock as it was when the watchdog started.
"""

from __future__ import annotations

import time as clocks

ANCHOR_NS = clocks.time_ns() - clocks.monotonic_ns()
"""What this process adds to CLOCK_MONOTONIC."""


def time() -> float:
    """Seconds since 1970 by the steady clock of this process."""
    return (clocks.monotonic_ns() + ANCHOR_NS) / 1e9


def boot_time() -> float:
    """When the machine started, on the steady clock: process starts count from there, sleep of the machine included."""
    return time() - clocks.clock_gettime(clocks.CLOCK_BOOTTIME)
