"""Which system call blocks a thread, and which descriptor or path it is about.

Source: /proc/PID/syscall (number and raw arguments; reading it takes ptrace rights) and the tables of
the kernel, arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (aarch64). Only
calls that can block.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from hangwatch_agent.shared.procfs import PROC, read_text, sleeps_uninterruptibly

_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 9: "mmap",
    11: "munmap", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23: "select",
    24: "sched_yield", 26: "msync", 34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect",
    43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 56: "clone", 58: "vfork",
    59: "execve", 61: "wait4", 65: "semop", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync",
    77: "ftruncate", 82: "rename", 87: "unlink", 128: "rt_sigtimedwait", 130: "rt_sigsuspend",
    162: "sync", 202: "futex", 217: "getdents64", 219: "restart_syscall", 220: "semtimedop",
    230: "clock_nanosleep", 231: "exit_group", 232: "epoll_wait", 243: "mq_timedreceive", 247: "waitid",
    257: "openat", 262: "newfstatat", 263: "unlinkat", 270: "pselect6", 271: "ppoll", 275: "splice",
    281: "epoll_pwait", 285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg",
    306: "syncfs", 316: "renameat2", 332: "statx", 426: "io_uring_enter", 435: "clone3",
    441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip
_AARCH64 = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 35: "unlinkat", 38: "renameat",
    46: "ftruncate", 47: "fallocate", 56: "openat", 57: "close", 61: "getdents64", 63: "read",
    64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev",
    71: "sendfile", 72: "pselect6", 73: "ppoll", 76: "splice", 79: "newfstatat", 80: "fstat", 81: "sync",
    82: "fsync", 83: "fdatasync", 94: "exit_group", 95: "waitid", 98: "futex", 101: "nanosleep",
    115: "clock_nanosleep", 124: "sched_yield", 128: "restart_syscall", 133: "rt_sigsuspend",
    137: "rt_sigtimedwait", 192: "semtimedop", 193: "semop", 202: "accept", 203: "connect", 206: "sendto",
    207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 215: "munmap", 220: "clone", 221: "execve",
    222: "mmap", 227: "msync", 242: "accept4", 243: "recvmmsg", 260: "wait4", 267: "syncfs",
    276: "renameat2", 291: "statx", 426: "io_uring_enter", 435: "clone3", 441: "epoll_pwait2",
    449: "futex_waitv",
}  # fmt: skip
NAMES = {"x86_64": _X86_64, "aarch64": _AARCH64}

_DESCRIPTOR_FIRST = frozenset(
    """
    read write pread64 pwrite64 readv writev preadv pwritev close fstat ioctl fcntl flock fsync fdatasync
    ftruncate fallocate getdents64 connect accept accept4 sendto recvfrom sendmsg recvmsg recvmmsg
    epoll_wait epoll_pwait epoll_pwait2 splice syncfs
    """.split()  # noqa: SIM905
)
_PATH_ARGUMENT = {"open": 0, "stat": 0, "lstat": 0, "unlink": 0, "rename": 0, "execve": 0} | dict.fromkeys(
    ("openat", "newfstatat", "statx", "unlinkat", "renameat", "renameat2"), 1
)
_LONGEST_PATH = 4096


@dataclass(frozen=True)
class SystemCall:
    """A call that a thread is in. `name` is "" for a thread that runs, "call N" for a number unknown here."""

    name: str
    arguments: tuple[int, ...] = ()


def parse(text: str, machine: str) -> SystemCall:
    """A call from the text of /proc/PID/syscall. Raises ValueError for text that is none."""
    words = text.split()
    if not words:
        raise ValueError("empty")
    if words[0] in ("running", "-1"):  # -1: blocked, but not in a call (a page fault)
        return SystemCall("")
    number = int(words[0])
    name = NAMES.get(machine, {}).get(number, f"call {number}")
    return SystemCall(name, tuple(int(word, 16) for word in words[1:7]))


def descriptor(call: SystemCall, pid: int, proc: Path = PROC) -> int | None:
    """The descriptor that a call is about: its argument, or the first one that poll or select watches."""
    if call.name in _DESCRIPTOR_FIRST and call.arguments:
        return _as_int(call.arguments[0])
    if call.name == "sendfile":
        return _as_int(call.arguments[1])
    if call.name in ("poll", "ppoll"):
        return _first_polled(call, pid, proc)
    if call.name in ("select", "pselect6"):
        return _first_selected(call, pid, proc)
    return None


_P_PID = 1  # of waitid(2)
_FUTEX_WAIT = 0
_FUTEX_LOCK_PI = 6
_FUTEX_WAITS = frozenset([_FUTEX_WAIT, _FUTEX_LOCK_PI, 9])  # and FUTEX_WAIT_BITSET of futex(2)
_FUTEX_PRIVATE = 128
_FUTEX_COMMAND = 127


def awaited_child(call: SystemCall) -> int | None:
    """The one child that a wait4 or waitid is for; None for any child, and for other calls."""
    if call.name == "wait4" and call.arguments:
        return _as_int(call.arguments[0]) or None
    if call.name == "waitid" and len(call.arguments) > 1 and call.arguments[0] == _P_PID:
        return _as_int(call.arguments[1]) or None
    return None


def waits_privately(call: SystemCall) -> bool:
    """Whether a futex call waits without a timeout for what only threads of the same process can give.

    Locks of threading are such; those of multiprocessing are shared between processes, and say so in the call.
    """
    if call.name != "futex" or len(call.arguments) < 4:
        return False
    command = call.arguments[1]
    return bool(command & _FUTEX_PRIVATE) and command & _FUTEX_COMMAND in _FUTEX_WAITS and call.arguments[3] == 0


_TIMER_ABSTIME = 1  # of clock_nanosleep(2)


def sleeps_for(call: SystemCall, pid: int, proc: Path = PROC) -> float | None:
    """For how many seconds a sleeping thread will go on sleeping; None where it does not sleep or it is not known.

    A relative sleep is taken to begin now: the kernel keeps its beginning to itself. Before 3.11 Python sleeps in a
    select that watches no descriptors.
    """
    unit = 1e9
    if call.name in ("select", "pselect6") and len(call.arguments) > 4 and call.arguments[0] == 0:
        clock, flags, request = time.CLOCK_MONOTONIC, 0, call.arguments[4]
        unit = 1e6 if call.name == "select" else 1e9
    elif call.name == "clock_nanosleep" and len(call.arguments) > 2:
        clock, flags, request = call.arguments[:3]
    elif call.name == "nanosleep" and call.arguments:
        clock, flags, request = time.CLOCK_MONOTONIC, 0, call.arguments[0]
    else:
        return None
    found = _time_at(request, unit, pid, proc)
    if found is None or clock > 11:
        return None
    return found - time.clock_gettime(clock) if flags & _TIMER_ABSTIME else found


_MILLISECONDS = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}  # the argument that is a timeout, below 0 for none
# That which is its address, 0 for none.
_TIMES = {"ppoll": 2, "pselect6": 4, "select": 4, "rt_sigtimedwait": 2, "recvmmsg": 4}
_FUTEX_CLOCK_REALTIME = 256


def times_out_after(call: SystemCall, pid: int, proc: Path = PROC) -> float | None:
    """In how many seconds, at most, a call that waits gives up by itself; None for a call without a timeout.

    A relative timeout is taken to begin now, as with sleeps.
    """
    arguments = call.arguments
    if (index := _MILLISECONDS.get(call.name)) is not None and len(arguments) > index:
        left_ms = _as_int(arguments[index])
        return None if left_ms is None else left_ms / 1e3
    if (index := _TIMES.get(call.name)) is not None and len(arguments) > index:
        return _time_at(arguments[index], 1e6 if call.name == "select" else 1e9, pid, proc)
    if call.name != "futex" or len(arguments) < 4 or arguments[1] & _FUTEX_COMMAND not in _FUTEX_WAITS:
        return None
    found, command = _time_at(arguments[3], 1e9, pid, proc), arguments[1] & _FUTEX_COMMAND
    if found is None or command == _FUTEX_WAIT:
        return found
    by_date = command == _FUTEX_LOCK_PI or arguments[1] & _FUTEX_CLOCK_REALTIME
    return found - time.clock_gettime(time.CLOCK_REALTIME if by_date else time.CLOCK_MONOTONIC)


def _time_at(address: int, unit: float, pid: int, proc: Path) -> float | None:
    """The struct timespec, or timeval, at that address, in seconds."""
    memory = _memory(pid, address, 16, proc) if address else b""
    if len(memory) < 16:
        return None
    seconds, parts = struct.unpack("=qq", memory)
    return float(seconds + parts / unit)


def path(call: SystemCall, pid: int, proc: Path = PROC) -> str | None:
    """The path that a call like openat was given, from the memory of the process."""
    if (index := _PATH_ARGUMENT.get(call.name)) is None:
        return None
    address = call.arguments[index]
    to_page_end = 4096 - address % 4096  # the next page may not be mapped
    memory = _memory(pid, address, to_page_end, proc)
    if b"\0" not in memory:
        memory += _memory(pid, address + to_page_end, _LONGEST_PATH, proc)
    found = memory.partition(b"\0")[0]
    return found.decode("utf-8", "replace") or None


def _first_polled(call: SystemCall, pid: int, proc: Path) -> int | None:
    memory = _memory(pid, call.arguments[0], 8 * min(call.arguments[1], 64), proc)
    descriptors = [
        fd
        for fd, _, _ in struct.iter_unpack(
            "=ihh",  # struct pollfd
            memory[: len(memory) // 8 * 8],
        )
        if fd >= 0
    ]
    return descriptors[0] if descriptors else None


def _first_selected(call: SystemCall, pid: int, proc: Path) -> int | None:
    size = (min(call.arguments[0], 1024) + 7) // 8
    for address in call.arguments[1:3]:
        bits = int.from_bytes(_memory(pid, address, size, proc), "little") if address else 0
        if bits:
            return (bits & -bits).bit_length() - 1
    return None


def _memory(pid: int, address: int, size: int, proc: Path) -> bytes:
    if sleeps_uninterruptibly(pid, proc):
        return b""
    try:
        handle = os.open(proc / str(pid) / "mem", os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.pread(handle, size, address)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(handle)


def _as_int(argument: int) -> int | None:
    value = argument & 0xFFFFFFFF
    return value if value < 0x80000000 else None


def current(pid: int, thread: int, proc: Path = PROC) -> SystemCall:
    """The call that a thread is in. Raises OSError (no ptrace rights, gone) or ValueError."""
    return parse(read_text(proc / str(pid) / "task" / str(thread) / "syscall"), os.uname().machine)
