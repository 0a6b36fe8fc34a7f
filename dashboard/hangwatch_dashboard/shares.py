"""Places that clients share: so many in all, and of them so many for one client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hangwatch_dashboard.bodies import BodyError

WAIT_S = 10.0


class Shares:
    """At most `places` holders at once, at most `each` of one client. A late holder waits, but not for ever."""

    def __init__(self, places: int, each: int) -> None:
        self._places, self._each = places, each
        self._held: Counter[str] = Counter()
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def place(self, client: str) -> AsyncIterator[None]:
        """Holds a place. Raises BodyError(503) where none is free in time."""
        async with self._freed:
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._freed.wait_for(lambda: self._has_room(client))
            except TimeoutError:
                raise BodyError(503, "too many large bodies at once") from None
            self._held[client] += 1
        try:
            yield
        finally:
            await asyncio.shield(self._give_back(client))

    def _has_room(self, client: str) -> bool:
        return self._held.total() < self._places and self._held[client] < self._each

    async def _give_back(self, client: str) -> None:
        async with self._freed:
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]
            self._freed.notify_all()
