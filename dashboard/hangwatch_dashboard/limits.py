"""How often a client may come: token buckets, as many as there is room for."""

from __future__ import annotations

from collections import OrderedDict

from hangwatch_dashboard.bodies import BodyError

MOST_CLIENTS = 50_000


class Rate:
    """So many requests a second for each client, `burst` at once."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str, now: float) -> None:
        """Counts one request. Raises BodyError(429) where it is one too many."""
        left, at = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + max(0.0, now - at) * self._per_s)
        self._buckets[client] = (max(left - 1.0, 0.0), now)
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1.0:
            raise BodyError(429, "too many requests")
