"""torch's own request handlers, asked over torch's own server on a socket that only this user can reach.

A handler runs on a thread of that server, without the interpreter lock; the thread that asks waits in `recv`, which
lets go of it. torch can be given a request made in Python too, but not with parameters: it cannot convert them, and a
handler that looks at its parameters raises (seen on 2.13; NCCL's recorder does so).

The server is started at the first question, and lives as long as its process. torch says on standard error that it has
been started.
"""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

TIMEOUT_S = 4.0  # a handler that waits for the device is given up; so is its thread, which is torch's
NAME = "handlers-{pid}.sock"


class Handlers:
    """The request handlers of this process. `folder` is for the socket, and private."""

    def __init__(self, module: Any, folder: Path) -> None:
        self._module, self._folder = module, folder
        self._server: Any = None
        self._pid = 0

    def named(self, name: str) -> Callable[[dict[str, str]], str] | None:
        """A way to ask one handler; None where this torch does not have it."""
        known: Callable[[], list[str]] = getattr(self._module, "_get_handler_names", list)
        if name not in known() or not hasattr(self._module, "_WorkerServer"):
            return None
        return lambda parameters: self.ask(name, parameters)

    def ask(self, name: str, parameters: Mapping[str, str]) -> str:
        """The handler's answer. Raises OSError, http.client.HTTPException or RuntimeError."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # By the descriptor of its folder: the address of a socket has room for about 100 characters.
            address = f"/proc/self/fd/{folder}/{NAME.format(pid=os.getpid())}"
            self._serve(address)
            return _ask(address, f"/handler/{name}?{urlencode(parameters)}")
        finally:
            os.close(folder)

    def _serve(self, address: str) -> None:
        if self._server is None or self._pid != os.getpid():
            self._server, self._pid = self._module._WorkerServer(address, -1), os.getpid()


def _ask(address: str, target: str) -> str:
    connection = _OverSocket(address)
    try:
        connection.request("POST", target)
        response = connection.getresponse()
        content = response.read().decode()
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise RuntimeError(f"torch's handler answers {response.status}: {content[:100]}")
    return content


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, address: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._address = address

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._address)
