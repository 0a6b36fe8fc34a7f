"""uvicorn's HTTP protocol, with a time limit for headers and a share of half-sent ones for each client.

uvicorn limits how long a connection may rest between requests, but not how long the headers of one may take.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS_S = 10.0
EACH = 2_048  # connections of one client that have not sent all headers of their request
FILES = 65_536  # a node keeps a connection open; more than a thousand nodes are usual in places


class Protocol(HttpToolsProtocol):
    """Closes connections whose headers do not arrive. `waiting` counts those under way, by client address."""

    waiting: ClassVar[Counter[str]] = Counter()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._patience: asyncio.TimerHandle | None = None
        self._from = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._from = self.client[0] if self.client else "?"
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        cycle: Any = self.cycle  # None before the first request
        if self._patience is None and (cycle is None or cycle.response_complete):
            self._await_headers()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._have_headers()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_headers()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        """The clock runs from the first byte, and from the connection where none comes at all."""
        if Protocol.waiting[self._from] >= EACH:
            self.transport.close()
            return
        Protocol.waiting[self._from] += 1
        self._patience = self.loop.call_later(HEADERS_S, self._too_late)

    def _have_headers(self) -> None:
        if self._patience is None:
            return
        self._patience.cancel()
        self._patience = None
        Protocol.waiting[self._from] -= 1
        if not Protocol.waiting[self._from]:
            del Protocol.waiting[self._from]

    def _too_late(self) -> None:
        self._have_headers()
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()


def allow_many_connections() -> None:
    """Raises this process's limit of open files as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
