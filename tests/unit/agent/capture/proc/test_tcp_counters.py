"""The kernel's counters of real connections of this process."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import ExitStack

import pytest

from hangwatch_agent.capture.proc.tcp_counters import Counters, tcp_counters
from hangwatch_agent.shared.procfs import socket_inodes

SENT = 8 << 20


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_what_was_sent_is_counted_where_it_was_sent(family: socket.AddressFamily, address: str) -> None:
    with ExitStack() as closing:
        try:
            server = closing.enter_context(socket.create_server((address, 0), family=family))
        except OSError:
            pytest.skip(f"{address} is not to be had here")
        sender = closing.enter_context(socket.create_connection(server.getsockname()[:2]))
        receiver = closing.enter_context(server.accept()[0])
        reader = threading.Thread(target=_read, args=(receiver,))
        reader.start()
        sender.sendall(bytes(SENT))
        reader.join(30)
        until = time.monotonic() + 30
        while (mine := _of(sender)).acknowledged < SENT and time.monotonic() < until:
            time.sleep(0.01)  # the last piece may be acknowledged a little later
        theirs = _of(receiver)
    assert (mine.local, mine.remote) == (address, address)
    assert SENT <= mine.acknowledged <= SENT + 1  # the kernel counts the connection's first acknowledgement, too
    assert 0.05 < mine.busy_s < 30
    assert 0 <= mine.no_room_s <= mine.busy_s
    assert mine.segments > 1
    assert (theirs.acknowledged, theirs.segments) == (0, 0)


def _read(receiver: socket.socket) -> None:
    left = SENT
    time.sleep(0.1)  # until then the data are on their way
    while left:
        left -= len(receiver.recv(1 << 20))


def _of(one: socket.socket) -> Counters:
    inode = os.readlink(f"/proc/self/fd/{one.fileno()}")[8:-1]
    assert inode in socket_inodes(os.getpid())
    return tcp_counters()[inode]
