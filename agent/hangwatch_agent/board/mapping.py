"""A file as memory, without a descriptor of it.

Python's `mmap` keeps a copy of the descriptor until the memory is given back (from 3.13 on it can do without). A
program may close that one behind our back and open a file of its own under the same number (whatever becomes a daemon
closes all it knows nothing of), and to give our memory back would close the program's file then. So the C library is
asked, by ctypes, which torch has imported anyway.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def mapped(descriptor: int, size: int) -> memoryview:
    """The first `size` bytes of a file, shared with all who map them; given back when no view of them is left.

    Raises OSError.
    """
    address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    memory = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(memory, _libc.munmap, address, size).atexit = False  # at its end a process gives all back anyway
    return memoryview(memory).cast("B")
