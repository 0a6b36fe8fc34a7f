"""One kept connection to the dashboard, and what its answers mean."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from hangwatch.wire import addresses

TIMEOUT_S = 5.0
MOST_ANSWER = 1 << 20


class AddressError(ValueError):
    """Not the address of a dashboard. The message says what is expected."""


@dataclass(frozen=True)
class Answer:
    """A dashboard's answer: the status, the body, and for how long it asks not to be bothered."""

    status: int
    body: bytes
    retry_after_s: float = 0.0

    @property
    def taken(self) -> bool:
        """Whether the dashboard has it: now, or (409) from an earlier try whose answer was lost."""
        return self.status == 409 or 200 <= self.status < 300

    @property
    def hopeless(self) -> bool:
        """Whether sending the same again would be refused again."""
        return self.status in (400, 413, 415, 422)


class Connection:
    """Sends bodies over one connection that is kept. Raises OSError and http.client.HTTPException when it breaks."""

    def __init__(self, address: str, token: str, *, clock: Callable[[], float] = time.time) -> None:
        self.address = addresses.shown(address)
        try:
            parts = addresses.split(address)
            self._port = parts.port or (443 if parts.scheme == "https" else 8470)
        except ValueError:
            raise AddressError(f"{self.address!r} is no valid address; wanted: http://monitor:8470") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise AddressError(f"{self.address!r} is not the address of a dashboard, such as http://monitor:8470")
        self._host, self._secure, self._base = parts.hostname, parts.scheme == "https", parts.path.rstrip("/")
        self._token, self._clock = token, clock
        self._connection: http.client.HTTPConnection | None = None

    def send(self, kind: str, body: bytes) -> Answer:
        """Posts a compressed JSON body to /api/v1/ingest/KIND."""
        kept = self._connection is not None
        try:
            return self._exchange(kind, body)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if not kept:
                raise
            return self._exchange(kind, body)  # it was closed for having been idle

    def _exchange(self, kind: str, body: bytes) -> Answer:
        connection = self._connection or self._connect()
        try:
            connection.request("POST", f"{self._base}/api/v1/ingest/{kind}", body, self._headers())
            response = connection.getresponse()
            content = response.read(MOST_ANSWER)
            if response.will_close or not response.isclosed():
                self.close()
        except BaseException:
            self.close()  # half an exchange is left in it
            raise
        return Answer(response.status, content, _seconds(response.headers.get("retry-after")))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()  # SSL_CERT_FILE names an authority of one's own
            self._connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)
        else:
            self._connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return self._connection

    def _headers(self) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
            "Hangwatch-Sent-At": f"{self._clock():.6f}",
        }
        return headers | {"Authorization": f"Bearer {self._token}"} if self._token else headers


def _seconds(text: str | None) -> float:
    return min(float(text), 60.0) if text is not None and text.isascii() and text.isdigit() else 0.0
