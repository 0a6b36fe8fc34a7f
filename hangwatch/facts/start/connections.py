"""Whether a rank is connected to its MASTER_PORT, or failed to listen there."""

from __future__ import annotations

import re

from hangwatch.facts.start.arrivals import address
from hangwatch.ranks.view import RankView

_TAKEN = re.compile(r"EADDRINUSE|address already in use|errno: ?98\b", re.IGNORECASE)


def found_port_taken(view: RankView) -> bool:
    """It failed to listen: another process has the port."""
    exception = view.exception
    return exception is not None and _TAKEN.search(f"{exception.type} {exception.message}") is not None


def is_lost(view: RankView) -> bool:
    """Known to have no connection to its MASTER_PORT."""
    process, port = view.evidence.process, address(view)[1]
    if process is None or not port or any(reason.startswith("sockets") for reason in process.unreadable):
        return False
    return not any(
        socket.local.endswith(f":{port}") if socket.state == "listen" else _joins(socket.remote, socket.local, port)
        for socket in process.sockets
        if socket.state in ("established", "listen")
    )


def _joins(remote: str, local: str, port: str) -> bool:
    return remote.endswith(f":{port}") or local.endswith(f":{port}")
