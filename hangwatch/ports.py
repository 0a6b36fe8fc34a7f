"""Ports for servers that are about to start: of probes, demos and the gallery's jobs."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

FIRST = 10_000  # below are services of the machine
GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")  # to connections, and to servers that ask for any port


def free_port() -> int:
    """A port on which nobody listens on this host, and that the kernel gives to nobody meanwhile.

    A rank listens on it some seconds later, when it has imported torch. On another host it is a guess.
    """
    ports = range(FIRST, _first_given())
    chosen = random.SystemRandom().sample(ports, min(50, len(ports)))  # the common one may have a seed
    return next(filter(None, map(_if_free, (*chosen, 0))))


def _first_given() -> int:
    try:
        return int(GIVEN.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return FIRST


def _if_free(port: int) -> int:
    """The port, or 0 where it is taken; any port for 0."""
    with contextlib.suppress(OSError), socket.create_server(("", port)) as listener:
        return int(listener.getsockname()[1])
    return 0
