"""Room that clients share: so many bytes in all, and of them so many for one client."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from hangwatch_dashboard.bodies import BodyError

WAIT_S = 10.0


@dataclass(eq=False)
class _Waiter:
    size: int
    admitted: asyncio.Event = field(default_factory=asyncio.Event)


class Shares:
    """At most `room` bytes are held at once, at most `each` of one client. What does not fit waits, but not for ever.

    Clients take turns, and the requests of one client come in their order. A request that fits its client's share
    but not the room lets no later one pass: small ones would keep a large one out for ever. Used by one event loop.
    """

    def __init__(self, room: int, each: int) -> None:
        self._room, self._each = room, each
        self._held: Counter[str] = Counter()
        self._total = 0
        self._waiting: dict[str, deque[_Waiter]] = {}  # the client whose turn is next comes first

    @asynccontextmanager
    async def place(self, client: str, size: int) -> AsyncIterator[None]:
        """Holds `size` bytes, at most a whole share. Raises BodyError(503) where there is no room in time."""
        size = min(size, self._each)
        await self._take(client, size)
        try:
            yield
        finally:
            self._hold(client, -size)
            self._admit()

    async def _take(self, client: str, size: int) -> None:
        waiter = _Waiter(size)
        self._waiting.setdefault(client, deque()).append(waiter)
        self._admit()
        try:
            async with asyncio.timeout(WAIT_S):
                await waiter.admitted.wait()
        except BaseException as error:
            self._leave(client, waiter)
            if isinstance(error, TimeoutError):
                raise BodyError(503, "too many large bodies at once") from None
            raise

    def _admit(self) -> None:
        """Wakes those that fit, and no others."""
        while (client := self._next()) is not None:
            waiters = self._waiting.pop(client)
            waiter = waiters.popleft()
            if waiters:
                self._waiting[client] = waiters  # behind the other clients
            self._hold(client, waiter.size)
            waiter.admitted.set()

    def _next(self) -> str | None:
        """The first client whose share has room for what it waits with, if that fits the whole room, too.

        Few clients are passed over, however many there are: a client must hold most of its share for that.
        """
        for client, waiters in self._waiting.items():
            if self._held[client] + waiters[0].size <= self._each:
                return client if self._total + waiters[0].size <= self._room else None
        return None

    def _hold(self, client: str, size: int) -> None:
        self._total += size
        self._held[client] += size
        if not self._held[client]:
            del self._held[client]

    def _leave(self, client: str, waiter: _Waiter) -> None:
        """A waiter that gives up: out of the queue, or out of the room if it was admitted at the same moment."""
        if waiter.admitted.is_set():
            self._hold(client, -waiter.size)
        else:
            waiters = self._waiting[client]
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[client]
        self._admit()
