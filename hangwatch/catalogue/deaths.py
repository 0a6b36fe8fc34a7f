"""What to do about a process that has ended, by how it ended."""

from __future__ import annotations

import signal

_MEMORY = (
    "give the host or container more memory, or use less of it: fewer loader workers, smaller batches, no copy of the"
    " data in each rank"
)
_SENT = "find out who sent SIGKILL: the kernel for lack of memory (dmesg), the container, a scheduler or a person"
_CRASHED = (
    "it crashed in native code: run again with PYTHONFAULTHANDLER=1 and core dumps (ulimit -c unlimited), and look at"
    " the extension that stands in the stack"
)
_BUS = (
    "a mapped file or shared memory could not be had: look whether /dev/shm or the disk is full (docker run --shm-size)"
)
_BY_SIGNAL = {
    signal.SIGKILL: _SENT,
    signal.SIGBUS: _BUS,
    **dict.fromkeys((signal.SIGSEGV, signal.SIGILL, signal.SIGFPE, signal.SIGABRT), _CRASHED),
}


def advice(exit_code: int | None, *, out_of_memory: bool = False) -> str:
    """What to do; "" where the way it ended does not tell. `exit_code` is negative for a signal."""
    if out_of_memory and exit_code in (None, -signal.SIGKILL):
        return _MEMORY
    return _BY_SIGNAL.get(signal.Signals(-exit_code), "") if exit_code is not None and _is_signal(-exit_code) else ""


def _is_signal(number: int) -> bool:
    return number in {int(each) for each in signal.Signals}
