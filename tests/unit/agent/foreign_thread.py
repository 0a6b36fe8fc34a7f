"""Threads that the system's library starts and not Python, as autograd's are, in which Python code runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def in_a_foreign_thread(act: Callable[[], object], name: str) -> None:
    """Call `act` in such a thread, which has `name` (15 characters at most), and wait for its end."""
    failed = list[BaseException]()

    def body(_: int | None) -> None:
        try:
            name_this_thread(name)
            act()
        except BaseException as error:
            failed.append(error)

    outermost(body)
    if failed:
        raise failed[0]


def name_this_thread(name: str) -> None:
    libc = ctypes.CDLL(None)
    libc.pthread_self.restype = ctypes.c_ulong
    libc.pthread_setname_np(ctypes.c_ulong(libc.pthread_self()), name.encode())


def outermost(body: Callable[[int | None], None]) -> None:
    """Call `body` as the outermost Python frame of such a thread, and wait for its end. It must not raise."""
    libc, ident, callback = ctypes.CDLL(None), ctypes.c_ulong(), CALLBACK(body)
    assert libc.pthread_create(ctypes.byref(ident), None, callback, None) == 0
    assert libc.pthread_join(ident, None) == 0
