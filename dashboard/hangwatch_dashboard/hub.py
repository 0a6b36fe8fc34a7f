"""Live events to many readers, none of which can hold up the others."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Set
from typing import Any

PING_S = 2.0
MOST_WAITING = 512  # events; a reader that far behind is cut off
REPLACEABLE = ("ranks", "collectives", "job")  # not "jobs", which has only the jobs that changed

Event = tuple[str, str, str]  # name, data in JSON, key of the job or ""


class Reader:
    """One open stream. Of events that replace each other only the newest waits; all others wait in order."""

    def __init__(self, jobs: Set[str]) -> None:
        self.jobs = frozenset(jobs)
        self._waiting: deque[Event] = deque()
        self._ready = asyncio.Event()
        self.closed = False
        self.loop = asyncio.get_running_loop()

    def put(self, event: str, data: str, job: str = "") -> None:
        """Queues an event of a job, or of all, `data` being JSON already."""
        if event in REPLACEABLE:
            self._waiting = deque(item for item in self._waiting if (item[0], item[2]) != (event, job))
        if len(self._waiting) >= MOST_WAITING:
            self.closed = True
        self._waiting.append((event, data, job))
        self._ready.set()

    def close(self) -> None:
        self.closed = True
        self._ready.set()

    async def take(self, timeout: float) -> Event | None:
        """The next event, or None if none comes in time."""
        if not self._waiting:
            self._ready.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._ready.wait()
            except TimeoutError:
                return None
        return self._waiting.popleft() if self._waiting else None


class Hub:
    """Hands events to the readers that want them; each is made into JSON once for all readers."""

    def __init__(self, most: int) -> None:
        self.readers: set[Reader] = set()
        self._most = most

    @property
    def full(self) -> bool:
        return len(self.readers) >= self._most

    def wanted(self, job: str) -> bool:
        """Whether a reader watches a job."""
        return any(job in reader.jobs for reader in list(self.readers))

    def publish(self, event: str, data: Any, job: str = "") -> None:
        """Sends an event to all readers, or to those of `job`."""
        if self.readers:
            self.publish_text(event, dumped(data), job)

    def publish_text(self, event: str, text: str, job: str = "") -> None:
        """`publish`, for what is JSON already."""
        for reader in self.readers:
            if not job or job in reader.jobs:
                reader.put(event, text, job)

    async def stream(self, jobs: Set[str], first: Iterable[tuple[str, Any, str]], ping: Any) -> AsyncIterator[bytes]:
        """The bytes of one stream: `first` events, then whatever is published; `ping()` gives the data of a ping."""
        reader = Reader(jobs)
        for event, data, job in first:
            reader.put(event, dumped(data), job)
        self.readers.add(reader)
        try:
            while not reader.closed:
                item = await reader.take(PING_S)
                yield framed(*(item or ("ping", dumped(ping()), "")))
        finally:
            self.readers.discard(reader)

    def close_soon(self) -> None:
        """`close`, to be called from a signal handler."""
        for reader in list(self.readers):
            reader.loop.call_soon_threadsafe(reader.close)

    def close(self) -> None:
        """Ends all streams, so that the server can stop."""
        for reader in list(self.readers):
            reader.close()


def dumped(data: Any) -> str:
    """JSON on one line: ASCII, so no string can end the event or the line early."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def framed(event: str, data: str, job: str = "") -> bytes:
    """An event of the stream. Its id is the job's key: tabs that share a stream need not parse what others want."""
    return f"event: {event}\nid: {job}\ndata: {data}\n\n".encode()
